"""Pages in a real browser, which the fixture ``browser`` starts."""


class Seen:
    """A page that was opened, with all that it asked for and complained about."""

    def __init__(self, browser, page, width, **options):
        self.context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        self.page = self.context.new_page()
        self.requests, self.messages = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.page.goto(page.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()
