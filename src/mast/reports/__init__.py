"""What people look at: pictures and tables of results."""
