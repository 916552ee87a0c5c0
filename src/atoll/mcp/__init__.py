"""The MCP server: sandboxes as tools for any MCP client, over stdio and streamable HTTP.

It speaks the protocol itself, from revision 2024-11-05 to 2026-07-28: importing the official SDK takes ten times
as long as this whole server needs to start, and an event loop longer than a cell needs to run. The tests talk to it
with the SDK's client.
"""
