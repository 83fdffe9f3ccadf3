"""Archives of any size: recordings anywhere, searched by processes of this machine or by a cluster."""
