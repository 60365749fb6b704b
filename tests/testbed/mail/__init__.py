"""Mail servers in processes of their own, which keep what they take and can be killed."""
