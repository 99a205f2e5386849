"""The web app: pages, badges, a feed, and the same answers as an HTTP API and MCP tools. It asks `catalog`, and knows nothing itself.

Gradio's Server mode carries it: the pages are drawn here, from templates that escape whatever comes from outside, and
Gradio serves the endpoints, their documentation and MCP. `server` imports Gradio; the other modules do not.
"""
