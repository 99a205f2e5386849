"""The Hub's cache on this disk: models that a campaign downloaded leave it again."""

from __future__ import annotations


def drop(model: str, revision: str) -> int:
    """Removes one revision of a model from the cache, and returns the bytes that became free; 0 when it was not there."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        found = scan_cache_dir()
    except CacheNotFound:
        return 0
    commits = [
        each.commit_hash
        for repository in found.repos
        if repository.repo_type == "model" and repository.repo_id == model
        for each in repository.revisions
        if each.commit_hash == revision
    ]
    if not commits:
        return 0
    plan = found.delete_revisions(*commits)
    plan.execute()
    return plan.expected_freed_size
