"""The examples of deployment: containers, Kubernetes, systemd, nginx."""
