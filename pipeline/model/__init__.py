"""Making models: train, export, quantize, evaluate, gate, bundle."""
