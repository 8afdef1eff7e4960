//! Conversion of the selectors in objects, as k8s-pb decodes them.

use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;

use super::label::{LabelRequirement, LabelSelector};
use crate::error::InvalidInput;

/// Converts the selector of a Deployment, a Service or another object.
impl TryFrom<&meta::LabelSelector> for LabelSelector {
    type Error = InvalidInput;

    fn try_from(selector: &meta::LabelSelector) -> Result<Self, InvalidInput> {
        let mut labels = selector.match_labels.iter();
        let equal = labels.try_fold(Self::new(), |all, (key, value)| {
            all.checked(key.clone(), LabelRequirement::Equal(value.clone()))
        })?;
        selector.match_expressions.iter().try_fold(equal, |all, expression| {
            let operator = expression.operator.as_deref().unwrap_or_default();
            all.requirement(expression.key.as_deref().unwrap_or_default(), operator, &expression.values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_label_selectors_of_objects() {
        let expression = |operator: &str, values: &[&str]| meta::LabelSelectorRequirement {
            key: Some("k".to_owned()),
            operator: Some(operator.to_owned()),
            values: values.iter().map(ToString::to_string).collect(),
        };
        for (operator, values, expected) in [
            ("In", &["a", "b"][..], Some("app=web,k in (a,b)")),
            ("NotIn", &["a"], Some("app=web,k notin (a)")),
            ("Exists", &[], Some("app=web,k")),
            ("DoesNotExist", &[], Some("app=web,!k")),
            ("Gt", &["1"], None),
            ("Exists", &["a"], None),
            ("In", &[], None),
            ("In", &["a", "-"], None),
        ] {
            let selector = meta::LabelSelector {
                match_labels: [("app".to_owned(), "web".to_owned())].into(),
                match_expressions: vec![expression(operator, values)],
            };
            let converted = LabelSelector::try_from(&selector).ok().map(|selector| selector.to_string());
            assert_eq!(converted.as_deref(), expected, "{operator}");
        }
    }
}
