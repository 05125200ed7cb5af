"""A hook of mkdocs: the line `<!-- commands -->` becomes the reference of the command line, made from the program's own help texts."""

import re
from collections.abc import Iterator
from typing import Any

import click

import mebandit.cli  # noqa: F401  commands are known once their module is imported
from mebandit.cli.terminal import commands

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with a section for each command in the place of the mark."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n\n".join(sections(commands, click.Context(commands, info_name="mebandit"))))


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """A section for a command, or one for each command of a group."""
    if not isinstance(command, click.Group):
        yield section(command, context)
        return
    for name in command.list_commands(context):
        inner = command.commands[name]
        yield from sections(inner, click.Context(inner, info_name=name, parent=context))


def section(command: click.Command, context: click.Context) -> str:
    """Heading, usage, description and options of one command."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context)) and record[1]]
    rows = [f"| {option(names)} | {cell(help)} |" for names, help in records]
    table = "\n".join(["| option | meaning |", "| --- | --- |", *rows])
    return "\n\n".join([f"## {context.command_path}", f"```\n{usage}\n```", described(command.help or ""), table])


def described(help: str) -> str:
    """A help text as Markdown; click keeps the lines of a paragraph that begins with a backspace, and so does a block of code."""
    paragraphs = re.split(r"\n\s*\n", help.strip())
    return "\n\n".join(f"```\n{kept}\n```" if (kept := literal(part)) else " ".join(part.split()) for part in paragraphs)


def literal(paragraph: str) -> str:
    """The lines after a backspace, without their indentation; nothing for an ordinary paragraph."""
    head, mark, lines = paragraph.partition("\b\n")
    return "\n".join(line.strip() for line in lines.splitlines()) if mark and not head.strip() else ""


def option(names: str) -> str:
    """`--out PATH` as code, its metavariable included."""
    return f"`{names.replace('|', chr(92) + '|')}`"


def cell(text: str) -> str:
    """A text that cannot end a cell of a table or begin a tag."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
