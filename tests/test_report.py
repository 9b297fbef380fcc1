"""The report: its content, and its behaviour in a browser."""

import base64
import dataclasses
import gzip
import json
import os
import re
import shutil
import subprocess
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape
from sklearn.datasets import load_iris

from marginpursuit import MarginPursuitClassifier
from marginpursuit.experiments.compare import compare, methods
from marginpursuit.experiments.method_results import Coefficient, Explanation, SuspiciousRow
from marginpursuit.experiments.paired_differences import recommend
from marginpursuit.experiments.runs import Figure, Run, Table
from marginpursuit.report import charts, render

EVIL = "<script>alert('x')</script>\"&"
PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="40" height="20"/>'
    "<script>parent.document.title = 'run'</script></svg>"
)
CHOSEN = ["MarginPursuitClassifier", "LinearSVC", "RidgeClassifier"]
EXPLAINED = Explanation(
    "MarginPursuitClassifierCV",
    (Coefficient(EVIL, EVIL, "+1", -0.5, 0.1, 1.0), Coefficient("b", "a", "word", 0.1, None, None)),
    (SuspiciousRow(EVIL, EVIL, EVIL, 0.01, 1.0, None, True),),
    7,
    1,
    20,
)


@pytest.fixture(scope="module")
def run():
    X, y = load_iris(return_X_y=True)
    chosen = {**methods(CHOSEN), EVIL: MarginPursuitClassifier(scale=2.0)}
    broken = {"broken": MarginPursuitClassifier(scale=-1.0)}
    two = y < 2
    sets = (
        compare(
            X, y, name="iris", description=EVIL, chosen=chosen, n_folds=3, baseline="LinearSVC"
        ),
        compare(
            X[two],
            np.array([EVIL, "b"])[y[two]],
            name=EVIL,
            sha256="ab" * 32,
            chosen={**methods(CHOSEN[:1]), **broken},
            n_folds=2,
        ),
    )
    sets = (*sets[:1], dataclasses.replace(sets[1], explanation=EXPLAINED, columns=(EVIL,)))
    return Run.now(
        f"A title {EVIL}",
        sets=sets,
        listings=(Table(EVIL, EVIL, ("claim", EVIL), ((EVIL, "holds"),)),),
        figures=(Figure(EVIL, EVIL, PICTURE),),
    )


@pytest.fixture(scope="module")
def page(run):
    return render(run)


class Outline(HTMLParser):
    """Collects scripts, identifiers, references and elements that are not closed."""

    def __init__(self, page):
        super().__init__()
        self.scripts, self.ids, self.references, self.open = 0, [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.ids += [value for name, value in attrs if name == "id"]
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link", "input", "img", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_complete_small_and_self_contained(page):
    outline = Outline(page)
    assert outline.open == []
    assert outline.scripts == 2  # the data and ours: no name became a script
    assert len(set(outline.ids)) == len(outline.ids)
    assert all(value.startswith(("#", "data:")) for value in outline.references)
    assert "default-src 'none'" in page
    assert len(page.encode()) < 1_000_000


def test_names_are_escaped(page):
    assert "alert('x')</script>" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page
    data = re.search(r'<script type="application/json" id="courses">(.*?)</script>', page)
    courses = json.loads(data[1])
    assert set(courses[0]) == {"MarginPursuitClassifier", "LinearSVC", EVIL}


def test_first_card_says_which_model_to_take(run, page):
    found = recommend(run.sets[0])
    card = page[page.index('<section class="verdict"') :]
    card = card[: card.index("</section>")]
    assert page.index(card) < page.index("<table")
    assert str(escape(found.headline)) in card
    assert str(escape(found.reason)) in card
    assert str(escape(EVIL)) in card
    assert page.count('<tr class="recommended">') == len(run.sets) + 1  # and a suspicious row
    effects = f"depend most on {EVIL} (lowers {EVIL}), a (raises b). Suspicious labels: 1."
    assert str(escape(effects)) in card
    for difference in found.differences.values():
        assert f">{difference.written}</td>" in page
    assert "A difference, in points of error, is" in page
    assert page.count("<td>baseline</td>") + page.count("<td>take, baseline</td>") == 1


def test_a_name_that_is_a_script_is_escaped_as_recommendation_and_baseline():
    X, y = load_iris(return_X_y=True)
    chosen = {EVIL: MarginPursuitClassifier(), **methods(["RidgeClassifier"])}
    for baseline in chosen:
        result = compare(X, y, name="iris", chosen=chosen, n_folds=2, baseline=baseline)
        page = render(Run.now("one", sets=(result,)))
        assert "alert('x')</script>" not in page
        assert Outline(page).scripts == 2


def test_effects_rows_and_confusions_are_shown(run, page):
    assert "-0.5 ± 0.1" in page
    assert "<td>0.010</td>" in page.replace(' class="number"', "")
    assert "Columns of the table" in page
    matrix = np.array(run.sets[0].methods[0].confusion)
    assert matrix.sum() == run.sets[0].n_rows
    recommended = recommend(run.sets[0]).method
    assert np.trace(recommended.confusion) == round((1 - recommended.error) * run.sets[0].n_rows)
    assert page.count('class="confusion"') == 2


def test_bins_of_the_calibration_chart_are_merged():
    bins = [(0.05, 0.0, 100), (0.15, 0.5, 2), (0.25, 0.0, 2), (0.95, 1.0, 50), (0.99, 1.0, 3)]
    merged = charts.merge_bins(bins)
    assert [count for _, _, count in merged] == [100, 57]
    assert sum(count for _, _, count in merged) == 157
    assert sum(p * n for p, _, n in merged) == pytest.approx(sum(p * n for p, _, n in bins))
    assert charts.merge_bins(bins[:1]) == bins[:1]
    assert "(0.00 to 0.04), 100 samples" in charts.calibration_chart(bins)


def test_long_names_may_be_broken(page):
    assert "<td>Margin<wbr>Pursuit<wbr>Classifier</td>" in page
    assert "<td>&lt;script&gt;alert<wbr>(&#39;x&#39;)&lt;/script&gt;&#34;&amp;</td>" in page


def test_page_shows_the_results_of_the_run(run, page):
    for result in run.sets:
        for method in result.methods:
            if not method.failure:
                assert f'data-value="{method.error}">{100 * method.error:.2f} %' in page
    for name, version in run.versions.items():
        assert f"<dt>{name}</dt><dd>{version}</dd>" in page
    assert "ab" * 32 in page
    assert "<strong>broken</strong> failed" in page
    assert "scale must be a number" in page


def test_figures_are_compressed_and_unchanged(run, page):
    packed = re.findall(r'data-gzip="([^"]*)"', page)
    assert [gzip.decompress(base64.b64decode(text)).decode() for text in packed] == [PICTURE]
    large = Figure("large", "", "<svg>" + "<path d='M 1.5 2.5'/>" * 50_000 + "</svg>")
    assert len(render(Run.now("one", figures=(large,)))) < 50_000


def test_empty_run_has_a_report():
    outline = Outline(render(Run.now("nothing")))
    assert outline.open == []


def test_run_with_failures_only_has_a_report(run):
    result = dataclasses.replace(run.sets[1], methods=run.sets[1].methods[1:])
    assert "failed on" in render(dataclasses.replace(run, sets=(result,)))


def test_histogram_has_the_area_of_the_density(run):
    course = run.sets[0].methods[0].course
    frame = charts.course_frames(course)["frames"][-1]
    steps = re.findall(r"V(\d+)H([\d.]+)", frame["wrong"] + frame["right"])
    assert len(steps) == len(course.edges) - 1
    heights = [200 - int(height) for height, _ in steps]
    expected = np.array(course.checkpoints[-1].density)
    np.testing.assert_allclose(
        np.array(heights) / max(heights), expected / expected.max(), atol=0.02
    )
    edges = [float(x) for _, x in steps]
    np.testing.assert_allclose(np.diff(edges), 360 / (len(course.edges) - 1), atol=0.11)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.07, [0, 0.02, 0.04, 0.06, 0.08]),
        (-1.2, 3.1, [-2, -1, 0, 1, 2, 3, 4]),
        (0, 0, [0, 1e-9]),
    ],
)
def test_ticks_are_round_and_enclose(low, high, expected):
    ticks = charts._ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    if high > low:
        assert ticks == pytest.approx(expected)


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    """A headless Chromium that shows the page."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with its driver is installed")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1200,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    shown = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        shown.get(path.as_uri())
        unfolded = (
            "return [...document.querySelectorAll('details')].filter(part => part.open).length"
        )
        assert shown.execute_script(unfolded) == 2  # the tables; all else is folded
        open_all(shown)
        yield shown
    finally:
        shown.quit()


def open_all(browser):
    browser.execute_script(
        "for (const part of document.querySelectorAll('details')) part.open = true"
    )


def picture(browser):
    return browser.execute_script(
        "return document.querySelector('.now path.right').getAttribute('d')"
    )


def column(browser, number):
    return browser.execute_script(
        "return [...document.querySelector('.sortable').tBodies[0].rows]"
        ".map(row => row.cells[arguments[0]].textContent)",
        number,
    )


def test_browser_slider_changes_the_figure(browser):
    from selenium.webdriver.common.keys import Keys

    slider = browser.find_element("css selector", ".course input[type=range]")
    caption = browser.find_element("css selector", ".now figcaption")
    before, last = picture(browser), caption.text
    assert "after 512 steps" in last
    slider.send_keys(Keys.HOME)
    assert picture(browser) != before
    assert "after 1 step:" in caption.text
    assert slider.get_attribute("aria-valuetext") == caption.text
    assert caption.text == browser.find_element("css selector", ".before figcaption").text
    slider.send_keys(Keys.END)
    assert picture(browser) == before
    assert caption.text == last


def test_browser_shows_the_course_of_the_chosen_method(browser):
    from selenium.webdriver.support.select import Select

    before = picture(browser)
    select = Select(browser.find_element("css selector", ".course select"))
    assert [option.text for option in select.options] == [CHOSEN[0], EVIL, CHOSEN[1]]
    select.select_by_visible_text("LinearSVC")
    assert picture(browser) != before
    select.select_by_visible_text(CHOSEN[0])
    assert picture(browser) == before


def test_browser_table_sorts_by_mouse_and_keyboard(browser):
    from selenium.webdriver.common.keys import Keys

    headings = browser.find_elements("css selector", ".sortable th")
    headings[1].find_element("css selector", "button").click()
    errors = [float(text.rstrip(" %")) for text in column(browser, 1)]
    assert errors == sorted(errors)
    assert headings[1].get_attribute("aria-sort") == "ascending"
    headings[1].find_element("css selector", "button").send_keys(Keys.ENTER)
    assert [float(text.rstrip(" %")) for text in column(browser, 1)] == sorted(errors)[::-1]
    assert headings[1].get_attribute("aria-sort") == "descending"
    headings[0].find_element("css selector", "button").click()
    names = column(browser, 0)
    assert names == sorted(names, key=str.lower)
    assert headings[1].get_attribute("aria-sort") is None
    # Methods without probabilities come last.
    headings[3].find_element("css selector", "button").click()
    losses = column(browser, 3)
    assert losses.index("–") == len(losses) - losses.count("–")
    headings[3].find_element("css selector", "button").click()
    assert column(browser, 3) != losses  # descending
    assert column(browser, 3).index("–") == len(losses) - losses.count("–")


def test_browser_light_and_dark(browser):
    def paper():
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    button = browser.find_element("id", "theme")
    light = paper()
    button.click()
    dark = paper()
    assert dark != light
    button.click()
    assert paper() == light
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    browser.execute_script("delete document.documentElement.dataset.theme")
    assert paper() == dark
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


SCREENS = [(width, theme) for width in (360, 768, 1400) for theme in ("light", "dark")]


@pytest.fixture(params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(request, browser):
    """The page on a screen of this width and theme."""
    width, theme = request.param
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    yield width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_browser_needs_no_horizontal_scrolling(browser, screen):
    """Neither the page nor a part of it, with all details unfolded."""
    assert browser.execute_script("return document.documentElement.scrollWidth") <= screen
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.scroll, .plain, figure')]"
        ".filter(part => part.scrollWidth > part.clientWidth + 1).map(part => part.outerHTML)"
    )
    assert wide == []
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.chart text')].map(text => "
        "text.getBoundingClientRect().height)"
    )
    assert min(size for size in sizes if size) > 9


def test_browser_folded_page_is_short(browser, screen):
    """At most three screens: the answer, and a table for each of two data sets."""
    fold = "for (const part of document.querySelectorAll('.part')) part.open = arguments[0]"
    browser.execute_script(fold, False)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_script(fold, True)
    assert height <= 3 * 800


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core: the file in AXE_CORE, or the package from npm."""
    if "AXE_CORE" in os.environ:
        return Path(os.environ["AXE_CORE"]).read_text("utf-8")
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("axe-core needs npm, or its file in the variable AXE_CORE")
    try:
        subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, check=True, timeout=60,
                       capture_output=True)  # fmt: skip
    except (subprocess.SubprocessError, OSError):
        pytest.skip("axe-core could not be fetched from npm")
    (package,) = folder.glob("*.tgz")
    with tarfile.open(package) as archive:
        return archive.extractfile("package/axe.min.js").read().decode()


def test_browser_accessibility(browser, screen, axe):
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(result => done(result.violations))"
    )
    assert [(issue["id"], [node["html"] for node in issue["nodes"]][:3]) for issue in found] == []


def test_browser_decompresses_the_figures(browser):
    from selenium.webdriver.support.wait import WebDriverWait

    image = browser.find_element("css selector", ".picture img")
    WebDriverWait(browser, 20).until(lambda _: image.get_property("naturalWidth") == 40)
    assert browser.title.startswith("A title")  # the script in the figure did not run


def test_browser_everything_can_be_reached_by_keyboard(browser):
    from selenium.webdriver.common.keys import Keys

    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen = set()
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        seen.add(browser.execute_script("return document.activeElement.tagName"))
    assert {"A", "BUTTON", "SELECT", "INPUT", "SUMMARY"} <= seen


def test_browser_saw_no_errors_and_no_requests(browser):
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        message["params"]["request"]["url"].split(":")[0]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "data", "blob"}
    assert "file" in asked
