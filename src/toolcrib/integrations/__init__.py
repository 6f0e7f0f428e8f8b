"""Tools for other frameworks: one module each, with one function, `tools`, whose calls take Toolcrib's path.

Each module needs the package it is named after. Arguments are checked, policy, approval, limits and audit
hold as for every other call, and a failure reaches the model as text.
"""
