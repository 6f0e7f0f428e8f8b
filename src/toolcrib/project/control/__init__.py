"""Steps that a project adds to the path of every call: policy, approval, secrets, rates, audit."""
