#!/usr/bin/env python3
"""forking_http.py ADDRESS PORT: Python's own HTTP server of the files that are here, with a process for each connection. Runs in a VM."""

import http.server
import socketserver
import sys


class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    pass


Server((sys.argv[1], int(sys.argv[2])), http.server.SimpleHTTPRequestHandler).serve_forever()
