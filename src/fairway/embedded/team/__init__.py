"""A team's box: Unix users prove who they are on a Unix socket, and each has a namespace.

`people` reads the machine's accounts, `door` lets a user in and answers on the socket, `rights` says what users may do.
"""
