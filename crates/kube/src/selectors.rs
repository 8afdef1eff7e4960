//! Label selectors of k8s-openapi.

use listwatch::{InvalidInput, LabelSelector};

/// Converts selectors of k8s-openapi.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
/// use listwatch_kube::ToLabelSelector as _;
///
/// let web = LabelSelector { match_labels: Some([("app".into(), "web".into())].into()), ..LabelSelector::default() };
/// assert_eq!(web.to_label_selector()?.to_string(), "app=web");
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
pub trait ToLabelSelector {
    /// Converts the selector of a Deployment, a Service or another object.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] for an operator other than `In`, `NotIn`, `Exists` and `DoesNotExist`. Also for an expression
    /// whose key or values an API server refuses.
    fn to_label_selector(&self) -> Result<LabelSelector, InvalidInput>;
}

impl ToLabelSelector for k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
    fn to_label_selector(&self) -> Result<LabelSelector, InvalidInput> {
        let labels = self.match_labels.iter().flatten();
        let equal = labels.fold(LabelSelector::new(), |all, (key, value)| all.equal(key, value));
        self.match_expressions.iter().flatten().try_fold(equal, |all, expression| {
            all.requirement(&expression.key, &expression.operator, expression.values.iter().flatten())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_label_selectors_and_rejects_other_operators() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

        let of = |operator: &str, values: &[&str]| {
            let requirement = meta::LabelSelectorRequirement {
                key: "k".to_owned(),
                operator: operator.to_owned(),
                values: Some(values.iter().map(ToString::to_string).collect()),
            };
            let match_labels = Some([("app".to_owned(), "web".to_owned())].into());
            meta::LabelSelector { match_labels, match_expressions: Some(vec![requirement]) }.to_label_selector()
        };
        assert_eq!(of("In", &["a", "b"]).unwrap().to_string(), "app=web,k in (a,b)");
        assert_eq!(of("DoesNotExist", &[]).unwrap().to_string(), "app=web,!k");
        assert!(of("Gt", &["1"]).is_err());
    }
}
