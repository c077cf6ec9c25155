"""`barnabas completion`: the script with which a shell completes commands, options, topics and groups."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  echo 'eval "$(barnabas completion bash)"' >> ~/.bashrc
  echo 'eval "$(barnabas completion zsh)"' >> ~/.zshrc
  barnabas completion fish > ~/.config/fish/completions/barnabas.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options, topics, groups and profiles."""
    from click.shell_completion import get_completion_class

    from barnabas.cli.main import barnabas

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(barnabas, {}, "barnabas", "_BARNABAS_COMPLETE").source())
