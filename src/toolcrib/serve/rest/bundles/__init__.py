"""Routes about bundles and their tools, over all bundles or in one."""
