"""The workshop: exercises, the learner's folder, confined runs of it, and checks that judge what was recorded"""
