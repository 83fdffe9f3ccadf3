"""Archives of any size: recordings anywhere, searched by processes on this machine or by a cluster."""
