"""The operator for Kubernetes: resources, the pods that it builds of them, and how it keeps both in step."""
