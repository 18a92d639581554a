"""The live view: a lab, a simulation or a recorded run in a browser, watched and commanded (docs/web.md)"""
