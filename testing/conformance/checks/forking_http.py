#!/usr/bin/env python3
"""Serves the files of the current directory by HTTP, with a process for each connection.

  forking_http.py ADDRESS PORT

It is Python's own HTTP server. Runs in a VM.
"""

import http.server
import socketserver
import sys


class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    pass


Server((sys.argv[1], int(sys.argv[2])), http.server.SimpleHTTPRequestHandler).serve_forever()
