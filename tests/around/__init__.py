"""What stands around the gateway when real programs use it: origins, upstream proxies, certificates, and the
gateway itself as a process. Python's standard library only; every port is bound as port 0 on 127.0.0.1.

The origin is called `origin.test`, a name that only these upstream proxies can resolve (RFC 6761 §6.2): a program
that received an answer from it has gone through the gateway, whatever else it may have tried.
"""
