"""The services that people read messages on, behind one interface."""
