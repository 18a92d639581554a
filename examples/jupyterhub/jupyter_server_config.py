"""Show the live view of mrclab in JupyterLab, by jupyter-server-proxy.

Copy it to /etc/jupyter/ where each student's server runs; on a JupyterHub that is the image or the machine of the
single-user servers. Each server makes a token of its own, which other users of the machine cannot read.
"""

import secrets

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - traitlets runs this file

_TOKEN = secrets.token_urlsafe(32)

c.ServerProxy.servers = {
    "mrclab": {
        "command": ["mrclab", "web", "--clock", "virtual", "--port", "{port}"],
        "environment": {"MRCLAB_WEB_TOKEN": _TOKEN},
        # The view serves its own name and page only. The proxy has checked who asks, and asks in that name.
        "request_headers_override": {
            "Host": "127.0.0.1:{port}",
            "Origin": "http://127.0.0.1:{port}",
            "Authorization": f"Bearer {_TOKEN}",
        },
        "timeout": 60,
        # The page looks for a token behind the #; the proxy sends the right one.
        "launcher_entry": {"title": "mrclab", "path_info": "mrclab/#proxy"},
    }
}
