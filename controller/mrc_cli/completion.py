"""`mrclab completion`: the code that makes a shell complete at the Tab key, and the table that it asks for."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer

from mrc_cli.candidates import CommandTable, Kind, Table
from mrc_cli.verbs import ASK, HIDDEN
from mrc_common.document import printable
from mrc_common.errors import UsageError

BASH = f"""\
_mrclab() {{
  local line=${{COMP_LINE:0:COMP_POINT}} words current cut
  read -ra words <<< "$line"
  if [[ $line == *[[:space:]] ]]; then words+=(""); fi
  current=${{words[${{#words[@]}}-1]}}
  mapfile -t COMPREPLY < <("${{words[0]}}" {ASK} "${{words[@]:1}}" 2>/dev/null)
  if [[ ${{#COMPREPLY[@]}} == 1 && -z ${{COMPREPLY[0]}} ]]; then COMPREPLY=(); fi
  # bash takes `:` and `=` for the ends of words, so what stands before the last of them is there already.
  cut=${{current%"${{current##*[:=]}}"}}
  COMPREPLY=("${{COMPREPLY[@]#"$cut"}}")
}}
complete -o default -F _mrclab mrclab
"""
ZSH = f"""\
#compdef mrclab
_mrclab() {{
  local -a found
  found=("${{(@f)$("${{words[1]}}" {ASK} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
  if [[ -n "${{found[1]}}" ]]; then compadd -a found; else _files; fi
}}
compdef _mrclab mrclab
"""
FISH = f"""\
function __mrclab_candidates
    set -l words (commandline -opc) (commandline -ct)
    $words[1] {ASK} $words[2..-1] 2>/dev/null
end
complete -c mrclab -f -a '(__mrclab_candidates)'
complete -c mrclab -n 'not __mrclab_candidates | string length -q' -F
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

#: What a parameter is, by its command and name, or by its name alone.
PARAMETERS: dict[str | tuple[str, str], Kind] = {
    "lab": Kind.LAB,
    "clock": Kind.CLOCK,
    "transport": Kind.TRANSPORT,
    "switch": Kind.SWITCH_KIND,
    "compiler": Kind.COMPILER,
    "payload": Kind.PAYLOAD,
    "hosts": Kind.HOST,
    "kind": Kind.FAILURE,
    "direction": Kind.DIRECTION,
    "links": Kind.LINKS,
    "shell": Kind.SHELL,
    "kinds": Kind.LISTED,
    "elements": Kind.ELEMENT,
    "target": Kind.ELEMENT,
    "host": Kind.HOST,
    "port": Kind.PORT,
    "process": Kind.PROCESS,
    "schedule": Kind.EXPERIMENT,
    "cluster": Kind.CLUSTER,
    ("run", "name"): Kind.RUNNABLE,
    ("compare", "name"): Kind.COMPARISON,
    ("scale", "name"): Kind.CLUSTER,
    ("figures", "names"): Kind.FIGURE,
    ("validate", "names"): Kind.SCENARIO,
    ("validate", "scenario"): Kind.SCENARIO,
    ("web", "what"): Kind.EXPERIMENT,
    ("web", "port"): Kind.FREE,
    ("events", "host"): Kind.FREE,
    ("web", "host"): Kind.FREE,
    ("p4sh", "switch"): Kind.SWITCH,
    ("trace", "switch"): Kind.SWITCH,
    ("workshop start", "number"): Kind.EXERCISE,
    ("workshop check", "number"): Kind.EXERCISE,
    ("workshop hint", "number"): Kind.EXERCISE,
    ("workshop solution", "number"): Kind.EXERCISE,
    ("workshop reset", "number"): Kind.EXERCISE,
    ("workshop verify", "number"): Kind.EXERCISE,
    ("workshop grade", "number"): Kind.EXERCISE,
    ("workshop leaderboard", "number"): Kind.EXERCISE,
    ("workshop hand-in", "number"): Kind.EXERCISE,
    ("workshop class reset", "exercise"): Kind.EXERCISE,
    ("workshop class notebooks", "numbers"): Kind.EXERCISE,
    **{(verb, "lab"): Kind.RUNNING for verb in ("down", "status", "fail", "restore", "deny", "allow", "capture")},
    **{(verb, "lab"): Kind.RUNNING for verb in ("exec", "env", "sh", "p4sh", "trace", "logs")},
    ("sweep run", "name"): Kind.SWEEP,
    ("topo validate", "labs"): Kind.LAB,
    ("topo show", "switch"): Kind.FREE,
    ("perf", "collective"): Kind.COLLECTIVE,
    ("export", "wanted"): Kind.FORMAT,
    ("sweep run", "file"): Kind.SWEEP,
}

#: Of groups that may be called like one of their commands.
DEFAULTS = {"sweep": "run"}


def verb(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish")],
) -> None:
    """Print the code that makes a shell complete verbs, options and names at the Tab key.

    For bash, put `eval "$(mrclab completion bash)"` into ~/.bashrc; for zsh the same with zsh into ~/.zshrc, after
    `compinit`; for fish write the output to ~/.config/fish/completions/mrclab.fish.
    """
    if shell not in SCRIPTS:
        raise UsageError(f"'{printable(shell)[:40]}': there is completion for {', '.join(SCRIPTS)}")
    typer.echo(SCRIPTS[shell], nl=False)


def make_table() -> Table:
    """Make the table of all commands, and of the names of what comes with mrclab; this imports all of them."""
    from mrc_cli.app import app

    commands: dict[str, CommandTable] = {}
    _add(typer.main.get_command(app), "", commands)
    return Table(commands, {kind.value: names for kind, names in _names().items()})


def _add(command: Any, path: str, commands: dict[str, CommandTable]) -> None:
    """Add a command and all below it."""
    options: dict[str, Kind | None] = {"--help": None}
    arguments: list[Kind] = []
    repeats = False
    for each in command.params:
        kind = kind_of(path, each)
        if each.param_type_name == "argument":
            arguments.append(kind)
            repeats = each.nargs == -1
        elif not getattr(each, "hidden", False):
            options |= dict.fromkeys((*each.opts, *each.secondary_opts), None if each.is_flag else kind)
    below = getattr(command, "commands", {})
    names = [name for name in below if name not in HIDDEN or path]
    for name in names:
        _add(below[name], f"{path} {name}".strip(), commands)
    commands[path] = CommandTable(options, arguments, repeats, names, DEFAULTS.get(path, ""))


def kind_of(path: str, parameter: Any) -> Kind:
    """Return what a parameter of a command is."""
    return PARAMETERS.get((path, parameter.name), PARAMETERS.get(parameter.name, Kind.FREE))


def _names() -> dict[Kind, list[str]]:
    from mrc_cli.export import Format
    from mrc_cli.listed import Kind as Listed
    from mrc_host.workloads import WORKLOADS
    from mrc_lab.faults.action import Direction
    from mrc_lab.faults.kinds import KINDS
    from mrc_runs import perf
    from mrc_runs.compare import known_comparisons
    from mrc_runs.experiment import known_experiments
    from mrc_scale.clusterfile import builtin_clusters
    from mrc_studies.figures.catalogue import FIGURES
    from mrc_studies.sweeps.spec import known_sweeps
    from mrc_studies.validation.scenarios import by_name
    from mrc_topo import schema
    from mrc_topo.labfile import builtin_labs
    from mrc_workshop.exercise import known

    experiments = list(known_experiments())
    return {
        Kind.LAB: list(builtin_labs()),
        Kind.CLOCK: ["real", "virtual"],
        Kind.TRANSPORT: ["mrc", "roce"],
        Kind.SWITCH_KIND: list(get_args(schema.Forwarder)),
        Kind.COMPILER: list(get_args(schema.Compiler)),
        Kind.PAYLOAD: list(get_args(schema.Payload)),
        Kind.LINKS: ["memory", "veth"],
        Kind.RUNNABLE: [*experiments, *sorted(WORKLOADS)],
        Kind.EXPERIMENT: experiments,
        Kind.COMPARISON: list(known_comparisons()),
        Kind.SWEEP: list(known_sweeps()),
        Kind.CLUSTER: list(builtin_clusters()),
        Kind.EXERCISE: [str(number) for number in known()],
        Kind.FIGURE: list(FIGURES),
        Kind.SCENARIO: list(by_name()),
        Kind.LISTED: [each.value for each in Listed],
        Kind.FAILURE: list(KINDS),
        Kind.DIRECTION: list(get_args(Direction)),
        Kind.COLLECTIVE: list(perf.COLLECTIVES),
        Kind.SHELL: list(SCRIPTS),
        Kind.FORMAT: [each.value for each in Format],
    }
