"""Open every page of the built site in a browser, as wide as a phone and as a desktop.

usage: python docs/check_pages.py [SITE]     (default: out/site; needs selenium and chromedriver)

Reports pages that are wider than the window, images that do not load or have no alternative text,
and errors of the console. The exit status is 1 if there are any.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from selenium import webdriver

WIDTHS = (390, 1280)  # pixels: a phone, a desktop
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--hide-scrollbars",
)

# Elements that reach beyond the window and lie in no container that scrolls or hides them.
FAULTS = """
const faults = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width + 1) {
  const scrolls = e => e && (["auto", "scroll", "hidden", "clip"].includes(
    getComputedStyle(e).overflowX) && e !== document.body && e !== document.documentElement
    || scrolls(e.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter(
    e => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement));
  faults.push("wider than the window by "
    + (document.documentElement.scrollWidth - width) + " px: "
    + wide.slice(-2).map(e => e.tagName + "." + e.className).join(", "));
}
for (const image of document.images) {
  if (image.complete && !image.naturalWidth && image.loading !== "lazy")
    faults.push("image does not load: " + image.getAttribute("src"));
  if (!image.hasAttribute("alt")) faults.push("image without alt: " + image.getAttribute("src"));
}
return faults;
"""


def browser(profile: str) -> webdriver.Chrome:
    """Start a headless Chromium that keeps the errors of its console."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    options.page_load_strategy = "normal"
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    driver = shutil.which("chromedriver")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def faults_of(shown: webdriver.Chrome, page: Path) -> list[str]:
    """Open a page at each width; what is wrong with it."""
    faults = []
    for width in WIDTHS:
        # A window cannot be narrower than about 500 px; the emulated screen can.
        shown.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        shown.get(page.as_uri())
        faults += [f"{width} px: {fault}" for fault in shown.execute_script(FAULTS)]
    return faults + [f"console: {entry['message']}" for entry in shown.get_log("browser")]


def main() -> int:
    """Check all pages of a site."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "out/site").resolve()
    static = site / "_static"
    pages = sorted(page for page in site.rglob("*.html") if static not in page.parents)
    if not pages:
        print(f"{site}: no page found. Build the site first: make docs", file=sys.stderr)
        return 2
    n_faults = 0
    with tempfile.TemporaryDirectory() as profile:
        shown = browser(profile)
        try:
            for page in pages:
                for fault in dict.fromkeys(faults_of(shown, page)):
                    n_faults += 1
                    print(f"{page.relative_to(site)}: {fault}", flush=True)
        finally:
            shown.quit()
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px: {n_faults} faults")
    return int(n_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
