"""Kind `python`: call a function of a module in a confined interpreter."""
