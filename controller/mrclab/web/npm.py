"""Gets a package of the npm registry without npm: one file over HTTP, from the registry that npm itself would ask.

npm's own settings hold, as far as they say where and how: `npm_config_registry` (in any case of letters), then
`registry=` in the user's npmrc (`~/.npmrc`), then in the machine's. So do `cafile`, `NODE_EXTRA_CA_CERTS` and the usual
proxy variables.
Nothing that a package has is run. What it must be its hash says, which the caller knows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import io
import os
import pathlib
import re
import ssl
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Final

REGISTRY: Final = "https://registry.npmjs.org"
#: The size limits of a package, and of one file in it.
MOST_PACKED: Final = 16 << 20
MOST_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 30.0
#: The waits before further tries, where another try may help.
AGAIN_S: Final = (1.0, 3.0)
#: HTTP status codes that may be different a moment later.
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
#: The files of the machine's settings: npm's own, and Debian's.
MACHINE: Final = (pathlib.Path("/usr/etc/npmrc"), pathlib.Path("/usr/local/etc/npmrc"), pathlib.Path("/etc/npmrc"))

Open = Callable[[urllib.request.Request], http.client.HTTPResponse]


class NpmError(Exception):
    """A package that cannot be fetched; the text says why, and what to do."""


# --- settings ------------------------------------------------------------------------------------------------


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return npm's settings `registry` and `cafile`, by lower-case name, as far as they are set."""
    lower = {name.lower(): value for name, value in environment.items()}
    given = {name: value for name in ("registry", "cafile") if (value := lower.get(f"npm_config_{name}", ""))}
    user = lower.get("npm_config_userconfig") or pathlib.Path(environment.get("HOME", "/"), ".npmrc")
    found: dict[str, str] = {}
    for path in (*MACHINE[::-1], pathlib.Path(user)):
        found |= {name: value for name, value in _npmrc(path, environment) if name in ("registry", "cafile")}
    return found | given


def _npmrc(path: pathlib.Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each line; `${NAME}` is a variable's value."""
    try:
        lines = path.read_text(errors="replace", encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", ";")):
            value = value.strip().strip("\"'")
            yield name.strip().lower(), re.sub(r"\$\{(\w+)\}", lambda at: environment.get(at[1], at[0]), value)


def registry(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the registry, without a slash at its end.

    Raises:
        NpmError: the configured registry is not an address.
    """
    found = settings(environment).get("registry", REGISTRY).rstrip("/")
    parts = urllib.parse.urlsplit(found)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NpmError(
            f"the npm registry {found!r} is not an http address; NPM_CONFIG_REGISTRY or `registry=` in ~/.npmrc sets it"
        )
    return found


def address(name: str, version: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of a package at the registry."""
    file = name.rpartition("/")[2]
    return f"{registry(environment)}/{urllib.parse.quote(name, safe='@/')}/-/{file}-{urllib.parse.quote(version)}.tgz"


# --- getting -------------------------------------------------------------------------------------------------


def _opener(environment: Mapping[str, str]) -> Open:
    context = ssl.create_default_context()
    for file in (settings(environment).get("cafile"), environment.get("NODE_EXTRA_CA_CERTS")):
        if file and os.path.exists(file):
            try:
                context.load_verify_locations(file)
            except OSError as error:
                raise NpmError(f"{file}: no certificates ({error}); npm's setting `cafile` names it") from error
    made = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    return lambda request: made.open(request, timeout=TIMEOUT_S)


def download(
    name: str,
    version: str,
    environment: Mapping[str, str] = os.environ,
    sleep: Callable[[float], object] = time.sleep,
) -> bytes:
    """Download a package from the registry; its hash is not checked yet.

    Raises:
        NpmError: the download fails.
    """
    where = address(name, version, environment)
    parts = urllib.parse.urlsplit(where)
    who, _, host = parts.netloc.rpartition("@")
    shown = urllib.parse.urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(shown, headers={"User-Agent": "mrclab"})
    if who:
        text = base64.b64encode(urllib.parse.unquote(who).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {text}")
    opener = _opener(environment)
    problem = ""
    for wait in (*AGAIN_S, None):
        try:
            with opener(request) as answer:
                data = answer.read(MOST_PACKED + 1)
        except urllib.error.HTTPError as error:
            problem = f"it answers {error.code} {error.reason}"
            error.close()
            if error.code not in PASSING:
                break
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            problem = f"{reason}".strip() or type(error).__name__
            if isinstance(reason, ssl.SSLCertVerificationError):
                break
        else:
            if len(data) > MOST_PACKED:
                raise NpmError(f"{shown}: more than {MOST_PACKED >> 20} MiB; nothing of it was used")
            return data
        if wait is not None:
            sleep(wait)
    raise NpmError(
        f"{shown}: {problem}. Is there a network? Another registry is named by NPM_CONFIG_REGISTRY or `registry=` in "
        "~/.npmrc, as for npm"
    )


# --- checking and unpacking ----------------------------------------------------------------------------------


def check(what: str, data: bytes, integrity: str) -> None:
    """Check a package against its hash, `sha512-...` as in a package-lock.json.

    Raises:
        NpmError: the hash differs.
    """
    kind, _, text = integrity.partition("-")
    try:
        wanted = base64.b64decode(text, validate=True) if kind == "sha512" else b""
    except binascii.Error:
        wanted = b""
    if len(wanted) != hashlib.sha512().digest_size:
        raise NpmError(f"{what}: {integrity!r} is not a sha512 hash as npm writes it")
    found = hashlib.sha512(data).digest()
    if not hmac.compare_digest(found, wanted):
        raise NpmError(
            f"{what}: what the registry gave is not what is wanted (sha512-{base64.b64encode(found).decode()}, not "
            f"{integrity}); nothing of it was used"
        )


def members(what: str, data: bytes, inside: list[str]) -> dict[str, bytes]:
    """Return files of a package by their names in it. No file is written, so no name in a package can lead out of a
    folder.

    Raises:
        NpmError: a file is missing, or is not a plain file.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for name in inside:
                member = archive.getmember(f"package/{name}")
                source = archive.extractfile(member) if member.isreg() and member.size <= MOST_BYTES else None
                if source is None:
                    raise NpmError(f"{what}: {name} is not a file, or larger than {MOST_BYTES >> 20} MiB")
                found[name] = source.read()
    except KeyError:
        raise NpmError(f"{what}: no file {name} in the package") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise NpmError(f"{what}: this is not a package ({error})") from error
    return found
