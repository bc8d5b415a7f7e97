"""Every shape that crosses a process or storage boundary: configs, Arrow schemas, manifests, errors."""
