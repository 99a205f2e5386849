"""A stand-in for the Hugging Face Hub: a real HTTP server on loopback, asked through the real client.

    with serve() as hub:
        hub.add_folder("org/model", folder, downloads=10)
        hub.fail(too_many(1, path="/api/models"))
        subprocess.run(..., env=os.environ | hub.environment(home))

It speaks what `huggingface_hub`, `datasets` and `hf://` use here: the listing of models with its pages, facts of
repositories, trees and paths, files with ranges and redirects, gates, and commits to datasets with their large files.
"""

from tests.hub_server.faults import Fault, Quota, html, too_many
from tests.hub_server.hub import OWNER, TOKEN, Hub, serve

__all__ = ["OWNER", "TOKEN", "Fault", "Hub", "Quota", "html", "serve", "too_many"]
