"""The plans: what one seed does, drawn before its history begins."""
