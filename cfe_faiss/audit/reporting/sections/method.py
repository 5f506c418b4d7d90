"""Method of a report, and what its numbers cannot say."""

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.inputs import Inputs


def method_section(inputs: Inputs) -> Section:
    """Return the method and its limits in plain words."""
    settings, people, person = inputs.settings, inputs.people, inputs.person
    averaged = (
        "The vector of a row holds its features, scaled to length 1."
        if inputs.finder.graph is None
        else "The vector of a node is averaged with those of its neighbours several times, similar neighbours counting "
        "more."
    )
    return Section(
        "method",
        "Method and limits",
        "How did these numbers come about, and what can they not say?",
        findings=(
            f"Counterfactual evidence for a {person} is another one who is very similar and was decided differently "
            f"(“Finding Counterfactual Evidences for Node Classification”, KDD 2025). {averaged} The similarity of two "
            f"{people} is the cosine of their vectors, 1 at most.",
            "Direct tests: the value is predicted from the vectors by a ridge-logistic model; a score test asks "
            "whether unfavourable decisions go along with the rest. Ratios: Koopman's interval and Tukey's "
            "studentized range, for all groups of an attribute at once. All p values of the report are adjusted "
            "together by Benjamini and Hochberg. Shares have Wilson intervals, differences Newcombe's.",
            f"Settings: {settings.k} neighbours, {settings.pairs:,} closest pairs, numbers with more than ten values "
            f"in groups (bins = {settings.bins}), confidence {inputs.level}. Ties are broken by a fixed seed. A dash "
            "stands for a number that is not defined.",
        ),
        limits=(
            f"The numbers describe this model on these {people}, not others, other times or another version.",
            "Where two attributes go along with each other, none of these numbers says which of them the model uses. "
            "The flip test asks the model itself, but only about changes that may not occur in the world.",
            "The p values hold for large samples. Where an attribute follows the decision more finely than the vectors "
            "can teach, or jumps at its border, every method that knows the vectors only raises false alarms.",
            "True classes are those recorded. Where the record itself is biased, error rates repeat it.",
            "The report judges nothing: whether a difference is lawful or acceptable is for the people who are "
            "responsible for the use of the model.",
        ),
    )


def subject_section(inputs: Inputs) -> Section:
    """Return an empty section: the page and report.json fill it with the facts about data and model."""
    return Section(
        "subject",
        "Data, model and reproduction",
        "Sizes, versions, digests, and lines for the person responsible.",
        headline=f"Sizes, versions and digests of data, model and {inputs.people}; lines for the person responsible.",
    )
