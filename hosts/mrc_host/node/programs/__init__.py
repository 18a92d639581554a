"""Programs on a host: what they own, what they ask for, and what reaches them; the agent's half of `mrc_host.verbs`"""
