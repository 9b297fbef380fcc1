"""SetFit, MTEB and sentence-transformers with a head of this library, on a tiny local model."""

import os

import numpy as np
import pytest

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, probe

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the packages are imported
st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # those of the packages
    pytest.mark.slow,  # importing the packages takes seconds
]

WORDS = {
    "sport": ["goal", "team", "match", "score", "coach"],
    "food": ["bread", "soup", "taste", "cook", "salt"],
    "space": ["orbit", "moon", "rocket", "star", "probe"],
}


def texts_and_labels(n_rows=90, seed=0):
    """Return short texts of three topics; a third of the words is of any topic."""
    rng = np.random.default_rng(seed)
    every = [word for words in WORDS.values() for word in words]
    texts, labels = [], []
    for k in range(n_rows):
        label = list(WORDS)[k % 3]
        words = [*rng.choice(WORDS[label], 4), *rng.choice(every, 2)]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


@pytest.fixture(scope="module")
def body():
    """A sentence encoder of random word vectors."""
    import torch
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for words in WORDS.values() for word in words})
    vocabulary = {word: k for k, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(len(vocabulary), 24, generator=torch.Generator().manual_seed(0))
    embedding = StaticEmbedding(tokenizer, embedding_weights=weights)
    return st.SentenceTransformer(modules=[embedding], device="cpu")


@pytest.mark.parametrize("as_tensor", [False, True], ids=["numpy", "torch"])
def test_embeddings_of_sentence_transformers(body, as_tensor):
    texts, labels = texts_and_labels()
    embeddings = body.encode(texts, convert_to_tensor=as_tensor, show_progress_bar=False)
    model = MarginPursuitClassifier().fit(embeddings[:60], labels[:60])
    assert model.score(embeddings[60:], labels[60:]) > 0.9
    result = probe(embeddings[:60], labels[:60], test=(embeddings[60:], labels[60:]), cv=3)
    assert result.table["top_1"][0] > 0.9


@pytest.mark.parametrize(
    "head",
    [MarginPursuitClassifier(), MarginPursuitClassifierCV(cv=3, scales=(1.0,))],
    ids=["single", "search"],
)
def test_setfit_head(body, head, tmp_path):
    setfit = pytest.importorskip("setfit", reason="setfit is not installed")
    texts, labels = texts_and_labels()
    model = setfit.SetFitModel(model_body=body, model_head=head, labels=list(WORDS))
    model.fit(texts[:60], labels[:60], num_epochs=1)
    assert np.mean(np.asarray(model.predict(texts[60:])) == labels[60:]) > 0.9
    proba = np.asarray(model.predict_proba(texts[60:], as_numpy=True))
    assert proba.shape == (30, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    model.save_pretrained(tmp_path / "model")
    import joblib

    loaded = joblib.load(tmp_path / "model" / "model_head.pkl")
    np.testing.assert_array_equal(loaded.coef_, model.model_head.coef_)
    assert loaded.classes_.tolist() == sorted(WORDS)


def test_mteb_evaluator_model(body):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.task_metadata import TaskMetadata

    class Topics(AbsTaskClassification):
        """Three topics, eight training texts of each."""

        metadata = TaskMetadata(
            name="Topics",
            description="Texts of three topics.",
            dataset={"path": "local/topics", "revision": "0"},
            type="Classification",
            category="t2c",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="accuracy",
            date=("2026-01-01", "2026-01-02"),
            domains=["News"],
            task_subtypes=["Topic classification"],
            license="mit",
            annotations_creators="derived",
            dialect=[],
            sample_creation="created",
            bibtex_citation="",
        )
        evaluator_model = MarginPursuitClassifier(probability=None)
        samples_per_label = 8
        n_experiments = 3

        def load_data(self, **_):
            parts = {}
            for name, seed, size in (("train", 0, 90), ("test", 1, 60)):
                texts, labels = texts_and_labels(size, seed)
                codes = [list(WORDS).index(label) for label in labels]
                parts[name] = datasets.Dataset.from_dict({"text": texts, "label": codes})
            self.dataset = datasets.DatasetDict(parts)
            self.data_loaded = True

    found = mteb.evaluate(body, Topics(), cache=None)
    scores = found.task_results[0].scores["test"][0]
    assert scores["main_score"] > 0.85
    assert len(scores["scores_per_experiment"]) == 3
