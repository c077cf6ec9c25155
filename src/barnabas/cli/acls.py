"""`barnabas acls`: who may do what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from barnabas.cli.shared.arguments import confirm, yes_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, Row, count_text, fail, nearest, show, show_json
from barnabas.cli.shared.target import Target, cluster_command

if TYPE_CHECKING:
    from barnabas.client.admin.results import Acl, AclFilter

LISTED: Final = (
    Column("principal", "principal"),
    Column("permission", "may"),
    Column("operation", "operation"),
    Column("resource_type", "on"),
    Column("resource", "resource"),
    Column("pattern", "pattern", rank=2),
    Column("host", "from host", rank=1),
)
CLUSTER: Final = "cluster"
CLUSTER_NAME: Final = "kafka-cluster"
WORDS: Final = {"allow": "allowed", "deny": "denied"}
EnumT = TypeVar("EnumT", bound=IntEnum)


def acl_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `allow`, `deny` and `remove` take behind their arguments."""
    for option in (
        click.option("--host", metavar="ADDRESS", help="Only from this IP address; by default from all."),
        click.option("--prefix", is_flag=True, help="The resource is a prefix of names."),
        click.option(
            "--transactional-id",
            "transactional_ids",
            multiple=True,
            metavar="ID",
            help="Also to write with this id.",
        ),
        click.option(
            "--group", "groups", multiple=True, metavar="GROUP", help="Also to read with this group."
        ),
    ):
        command = option(command)
    return command


@click.group(cls=ClusterGroup)
def acls() -> None:
    """Allow and deny operations, and show who may do what.

    Brokers ask their ACLs if they have an authorizer (authorizer.class.name).
    """


def _change_command(permission: str, examples: str) -> click.Command:
    @acls.command(
        name=permission,
        help=f"{permission.capitalize()} operations of a principal on a resource.",
        epilog=f"""\b
PRINCIPAL is a user such as User:ann, or User:* for everybody.
OPERATION is one or several of read, write, create, delete, alter, describe, cluster-action,
describe-configs, alter-configs, idempotent-write, create-tokens, describe-tokens,
two-phase-commit, all; separated by commas. Reading and writing include describing.
TYPE is topic, group, cluster, transactional-id, delegation-token or user.
NAME is the resource, '*' for all of the type; the cluster needs none.
\b
Examples:
{examples}""",
    )
    @click.argument("principal")
    @click.argument("operation")
    @click.argument("resource_type", metavar="TYPE")
    @click.argument("resource", required=False, metavar="[NAME]")
    @acl_options
    @cluster_command
    def change(target: Target, principal: str, operation: str, resource_type: str, **options: Any) -> None:
        wanted = _acls(permission, principal, operation, resource_type, **options)
        with target.admin() as admin:
            admin.create_acls(wanted)
        if target.as_json:
            show_json([_row(acl) for acl in wanted])
        else:
            for acl in wanted:
                click.echo(f"{_sentence(acl)}: {WORDS[permission]}")

    return change


_change_command(
    "allow",
    """  barnabas acls allow User:ann read topic orders --group billing
  barnabas acls allow User:loader write,create topic logs- --prefix
  barnabas acls allow User:ann idempotent-write cluster""",
)
_change_command("deny", "  barnabas acls deny 'User:*' delete topic '*' --host 10.0.0.7")


@acls.command(
    name="list",
    epilog="""\b
With a NAME it lists what applies to the resource: also prefixes and '*'.
\b
Examples:
  barnabas acls list --principal User:ann
  barnabas acls list topic orders""",
)
@click.argument("resource_type", required=False, metavar="[TYPE]")
@click.argument("resource", required=False, metavar="[NAME]")
@click.option("--principal", metavar="PRINCIPAL", help="Only of this principal.")
@click.option("--exact", is_flag=True, help="With a NAME: only ACLs of exactly this resource.")
@cluster_command
def list_acls(
    target: Target, resource_type: str | None, resource: str | None, principal: str | None, exact: bool
) -> None:
    """List ACLs."""
    from barnabas.client.admin.results import AclFilter, AclPatternType

    kind, name = _resource(resource_type, resource, is_required=False)
    selected = AclFilter(
        principal=None if principal is None else _principal(principal),
        resource_type=kind,
        resource=name,
        pattern_type=None if exact or name is None else AclPatternType.MATCH,
    )
    with target.admin() as admin:
        found = admin.describe_acls(selected)
    show(map(_row, found), LISTED, as_json=target.as_json, nothing="no ACLs")


@acls.command(
    epilog="""\b
What is left out means any: `barnabas acls remove User:ann` removes all ACLs of a user.
\b
Examples:
  barnabas acls remove User:ann read topic orders --group billing
  barnabas acls remove User:ann --yes""",
)
@click.argument("principal")
@click.argument("operation", required=False, metavar="[OPERATION]")
@click.argument("resource_type", required=False, metavar="[TYPE]")
@click.argument("resource", required=False, metavar="[NAME]")
@acl_options
@click.option("--permission", type=click.Choice(list(WORDS)), help="Only what is allowed, or denied.")
@yes_option
@cluster_command
def remove(target: Target, principal: str, permission: str | None, yes: bool, **options: Any) -> None:
    """Remove ACLs of a principal."""
    filters = _filters(principal, permission, **options)
    with target.admin() as admin:
        found = {acl for each in filters for acl in admin.describe_acls(each)}
        if not found:
            fail("there are no such ACLs", NOT_FOUND)
        confirm(f"remove {count_text(len(found), 'ACL')} of {_principal(principal)}", yes=yes)
        removed = admin.delete_acls(filters)
    if target.as_json:
        show_json([_row(acl) for acl in removed])
    else:
        for acl in removed:
            click.echo(f"{_sentence(acl)}: {acl.permission.name.lower()} removed")


def _acls(
    permission: str,
    principal: str,
    operation: str,
    resource_type: str,
    resource: str | None,
    host: str | None,
    prefix: bool,
    groups: Sequence[str],
    transactional_ids: Sequence[str],
) -> list[Acl]:
    from barnabas.client.admin.results import (
        Acl,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
    )

    kind, name = _resource(resource_type, resource, is_required=True)
    assert kind is not None
    assert name is not None
    pattern = AclPatternType.PREFIXED if prefix else AclPatternType.LITERAL
    user, where, may = _principal(principal), _host(host) or "*", AclPermission[permission.upper()]
    literal = AclPatternType.LITERAL
    ids = AclResourceType.TRANSACTIONAL_ID
    return [
        *(Acl(user, each, kind, name, pattern, where, may) for each in _operations(operation)),
        *(Acl(user, AclOperation.READ, AclResourceType.GROUP, each, literal, where, may) for each in groups),
        *(Acl(user, AclOperation.WRITE, ids, each, literal, where, may) for each in transactional_ids),
    ]


def _filters(
    principal: str,
    permission: str | None,
    operation: str | None,
    resource_type: str | None,
    resource: str | None,
    host: str | None,
    prefix: bool,
    groups: Sequence[str],
    transactional_ids: Sequence[str],
) -> list[AclFilter]:
    from barnabas.client.admin.results import (
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
    )

    kind, name = _resource(resource_type, resource, is_required=False)
    base = AclFilter(
        principal=_principal(principal),
        host=_host(host),
        permission=None if permission is None else AclPermission[permission.upper()],
    )
    pattern = AclPatternType.PREFIXED if prefix else None if name is None else AclPatternType.LITERAL
    main = base._replace(resource_type=kind, resource=name, pattern_type=pattern)
    literal = base._replace(pattern_type=AclPatternType.LITERAL)
    operations = [None] if operation is None else _operations(operation)
    groups_of = literal._replace(operation=AclOperation.READ, resource_type=AclResourceType.GROUP)
    ids_of = literal._replace(operation=AclOperation.WRITE, resource_type=AclResourceType.TRANSACTIONAL_ID)
    return [
        *(main._replace(operation=each) for each in operations),
        *(groups_of._replace(resource=each) for each in groups),
        *(ids_of._replace(resource=each) for each in transactional_ids),
    ]


def _principal(text: str) -> str:
    if ":" not in text:
        raise click.UsageError(f"{text!r} is not a principal. Did you mean User:{text}?")
    return text


def _host(text: str | None) -> str | None:
    if text is None:
        return None
    from barnabas.security.addresses import java_address

    return java_address(text)


def _operations(text: str) -> list[Any]:
    from barnabas.client.admin.results import AclOperation

    return [_member(AclOperation, each, "operation") for each in text.split(",")]


def _resource(resource_type: str | None, name: str | None, *, is_required: bool) -> tuple[Any, str | None]:
    if resource_type is None:
        return None, None
    from barnabas.client.admin.results import AclResourceType

    kind = _member(AclResourceType, resource_type, "type of resource")
    if kind is AclResourceType.CLUSTER:
        if name not in (None, CLUSTER_NAME):
            raise click.UsageError(f"The cluster needs no name; its name is {CLUSTER_NAME}.")
        return kind, CLUSTER_NAME
    if name is None and is_required:
        raise click.UsageError(f"Specify the {resource_type}, or '*' for all.")
    return kind, name


def _member(names: type[EnumT], text: str, what: str) -> EnumT:
    """A name in Kafka's spelling, or with dashes in lower case."""
    known = {_word(each): each for each in names}
    word = text.strip().lower().replace("_", "-")
    if word not in known:
        hint = nearest(word, known) or "."
        raise click.UsageError(f"There is no {what} {text!r}{hint} There are: {', '.join(known)}.")
    return known[word]


def _word(member: IntEnum) -> str:
    return member.name.lower().replace("_", "-")


def _row(acl: Acl) -> Row:
    return {
        "principal": acl.principal,
        "permission": _word(acl.permission),
        "operation": _word(acl.operation),
        "resource_type": _word(acl.resource_type),
        "resource": acl.resource,
        "pattern": _word(acl.pattern_type),
        "host": acl.host,
    }


def _sentence(acl: Acl) -> str:
    kind = _word(acl.resource_type)
    what = kind if kind == CLUSTER else f"{kind} {acl.resource}"
    prefix = " and all names that begin so" if _word(acl.pattern_type) == "prefixed" else ""
    where = "" if acl.host == "*" else f" from {acl.host}"
    return f"{acl.principal} {_word(acl.operation)} {what}{prefix}{where}"
