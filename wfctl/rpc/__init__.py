"""JSON-RPC 2.0 over sockets and pipes: frames, messages, the server and the client. It has no rules of its own."""
