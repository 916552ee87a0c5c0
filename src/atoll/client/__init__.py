"""The host side of a sandbox: the registry's records, the guest's protocol, and what is built on them.

Written as coroutines against `atoll.io.IO`, so that `AsyncSandbox` and `Sandbox` share all of it.
"""
