"""Commands about bundles and their tools. They need no project, only the store."""
