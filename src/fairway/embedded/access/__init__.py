"""Who asks the embedded server, and what that user may do: identities, tokens, and the rules of RBAC."""
