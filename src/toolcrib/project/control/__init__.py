"""Steps that a project adds around each call: policy, approval, secrets, audit."""
