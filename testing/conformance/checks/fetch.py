#!/usr/bin/env python3
"""Fetches a URL, and fails if the hash of its content is not that of the file. Runs in a VM.

  fetch.py URL FILE
"""

import hashlib
import sys
import urllib.request

url, file = sys.argv[1:]
with urllib.request.urlopen(url) as answer:
    fetched = hashlib.file_digest(answer, "sha256").hexdigest()
with open(file, "rb") as own:
    expected = hashlib.file_digest(own, "sha256").hexdigest()
if fetched != expected:
    sys.exit(f"{url} has {fetched}, {file} has {expected}")
print("the hashes are equal")
