"""An interpreter of BMv2 JSON that reports what it does: each packet gives the packets sent, and events for observers.

It follows simple_switch as p4-target.md describes it, and shares no code with the generator of C: tests compare
the two. `machine.Interpreter` is the switch; `events` are what it reports.
"""
