# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse push`."""

from dataclasses import dataclass, field


@dataclass
class PushArguments:
    """What to publish, and where."""

    model_name_or_path: str = field(metadata={"help": "Folder that `hf-dse export` or `hf-dse distill` wrote."})
    repo_id: str = field(metadata={"help": "Repository on the Hub, user/name; created if it does not exist."})
    private: bool = field(default=False, metadata={"help": "Make a new repository private."})
    revision: str | None = field(
        default=None, metadata={"help": "Branch to commit to, created if it does not exist. Default: main."}
    )
    token: str | None = field(
        default=None, metadata={"help": "Token with write access. Default: that of HF_TOKEN or `hf auth login`."}
    )
    commit_message: str | None = field(default=None, metadata={"help": "First line of the commit."})
    create_pr: bool = field(default=False, metadata={"help": "Open a pull request with the commit."})
    dry_run: bool = field(
        default=False, metadata={"help": "Only check the folder and list its files; needs no token, sends nothing."}
    )


def push(args: PushArguments) -> None:
    """
    Publish a model folder on the Hub, in one commit.

    hf-dse push --model_name_or_path student/model --repo_id user/name --dry_run
    """
    from huggingface_hub import CommitInfo

    from hf_dse.common.display import one_line
    from hf_dse.publish.push import push_model

    pushed = push_model(
        args.model_name_or_path,
        args.repo_id,
        private=args.private or None,
        revision=args.revision,
        token=args.token,
        commit_message=args.commit_message,
        create_pr=args.create_pr,
        dry_run=args.dry_run,
    )
    if isinstance(pushed, CommitInfo):
        print(f"Pushed to {pushed.pr_url or pushed.commit_url}")
        return
    for name, size in pushed.items():
        print(f"{size:>15,}  {one_line(name)}")
    print(f"{sum(pushed.values()):>15,}  bytes in {len(pushed)} files would be pushed to {args.repo_id}")
