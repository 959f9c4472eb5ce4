"""Stand-ins for what a panel test must not really do: ask people, reach the network."""

from __future__ import annotations

from MemorizationIndexLib.gui.dialogs import Dialogs


class Answers(Dialogs):
    """Dialogs that are answered beforehand; ``asked`` holds the questions."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def _answer(self, kind, text, default):
        self.asked.append(text)
        return self.answers.get(kind, default)

    def choose_folder(self, title, start=""):
        return str(self._answer("folder", title, ""))

    def choose_file(self, title, kinds, start=""):
        return str(self._answer("file", title, ""))

    def choose_new_file(self, title, kinds, start=""):
        return str(self._answer("new_file", title, ""))

    def confirm(self, question):
        return bool(self._answer("confirm", question, False))
