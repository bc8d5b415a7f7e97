"""Every shape that crosses a process or storage boundary: configs, schemas, manifests, errors."""
