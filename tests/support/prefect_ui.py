"""The Prefect UI as a person uses it: forms filled, buttons pressed, words waited for."""

from __future__ import annotations

import json
from typing import Any

from tests.support.browser import Page
from tests.support.deadline import until

PATIENCE_S = 300.0

_FIELD = """
(label => {
  const named = e => e.textContent.replace('(Optional)', '').trim() === label;
  const found = [...document.querySelectorAll('.p-label')].find(
    e => [...e.querySelectorAll('.schema-form-property__label, .p-label__label')].some(named));
  return found && [...found.querySelectorAll('textarea, input')].filter(
    e => e.type === 'checkbox' || e.style.display !== 'none').pop();
})(%s)
"""
_TYPE = """
((field, text) => {
  const owner = field.localName === 'textarea' ? HTMLTextAreaElement : HTMLInputElement;
  Object.getOwnPropertyDescriptor(owner.prototype, 'value').set.call(field, text);
  for (const kind of ['input', 'change', 'blur']) field.dispatchEvent(new Event(kind, {bubbles: true}));
})(%s, %s)
"""
_BUTTON = """
(text => [...document.querySelectorAll(
    'button, a, label, [role=menuitem], .p-overflow-menu-item, .p-select-option, .p-tab')].filter(
  e => e.offsetParent && !e.disabled && e.textContent.trim() === text).pop())(%s)
"""


class PrefectUi:
    """A page of the Prefect UI that is open in a browser."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self._address = page, address

    def go(self, path: str) -> None:
        self.page.call("Page.navigate", url=f"{self._address}{path}")
        until(lambda: self.page.evaluate("document.readyState") == "complete", path, seconds=PATIENCE_S)

    def fill(self, label: str, text: str) -> None:
        """Type into the field of that label, once it is there."""
        field = _FIELD % json.dumps(label)
        self._until(f"!!{field}", f"a field {label!r}")
        self.page.evaluate(_TYPE % (field, json.dumps(text)))

    def tick(self, label: str) -> None:
        """Press the switch of that label."""
        field = _FIELD % json.dumps(label)
        self._until(f"!!{field}", f"a switch {label!r}")
        self.page.evaluate(f"{field}.click()")

    def press(self, text: str) -> None:
        """Press the last button, link or menu entry of exactly that text, once it is there."""
        button = _BUTTON % json.dumps(text)
        self._until(f"!!{button}", f"a button {text!r}")
        self.page.evaluate(f"{button}.click()")

    def press_in_dialog(self, text: str) -> None:
        """Press the button of that text in the dialog that is open."""
        button = _BUTTON % json.dumps(text)
        inside = button.replace(
            "document.querySelectorAll(", "document.querySelector('.p-modal').querySelectorAll("
        )
        self._until(f"!!document.querySelector('.p-modal') && !!{inside}", f"a button {text!r} in a dialog")
        self.page.evaluate(f"{inside}.click()")

    def submit(self, text: str) -> None:
        """Press the button of a form until the page has moved on: a busy server answers some requests with a
        503, which the page tells, for a person to press again."""
        form, regret = self.path, "Something went wrong"
        while self.path == form:
            self.press(text)
            moved = f"location.pathname !== {json.dumps(form)}"
            refused = f"document.body.innerText.includes({json.dumps(regret)})"
            self._until(f"{moved} || {refused}", "an answer")
            while self.page.evaluate(f"!({moved}) && {refused}"):
                self.press("Close")

    def log_in(self, credentials: str) -> None:
        """Get past the form that a guarded server shows."""
        self.read("Login")
        password = "document.querySelector('input[type=password]')"
        self._until(f"!!{password}", "a field for the password")
        self.page.evaluate(_TYPE % (password, json.dumps(credentials)))
        self.press("Login")
        self.read("Deployments")

    def read(self, text: str) -> None:
        """Wait until the page says so."""
        self._until(f"document.body.innerText.includes({json.dumps(text)})", repr(text))

    @property
    def path(self) -> str:
        return str(self.page.evaluate("location.pathname"))

    def _until(self, expression: str, what: str) -> Any:
        try:
            return until(lambda: self.page.evaluate(expression), what, seconds=PATIENCE_S, every=0.3)
        except AssertionError as error:
            shown = self.page.evaluate("document.body.innerText")
            raise AssertionError(f"{error}; {self.path} shows:\n{shown}") from None
