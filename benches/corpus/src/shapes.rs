//! The shapes of workloads: which ones run in a cluster, and how the structure of their Pods differs.

/// What owns the Pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Deployment,
    StatefulSet,
    /// One Pod on most nodes.
    DaemonSet,
    Job,
    /// A custom resource of this `apiVersion`, kind and field manager.
    Operator(&'static str, &'static str, &'static str),
    /// The kubelet, from a file.
    Static,
    /// Nothing: a user applied the Pod.
    Nothing,
}

/// A group of annotations.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    Prometheus,
    Checksums,
    Restarted,
    Cni,
    Multus,
    Istio,
    Linkerd,
    /// Text templates of files that an agent renders: 1 to 3 of them, up to 2 kB each.
    Vault,
    Datadog,
    SafeToEvict,
    /// A whole workflow template as JSON: 4 to 24 kB.
    Workflow,
    /// A pipeline's results and parameters: 2 to 10 kB.
    Pipeline,
    /// A configuration file as JSON: 2 to 12 kB.
    Config,
    /// The whole applied object: 2 to 8 kB.
    LastApplied,
    StaticHash,
}

/// A container that runs in addition to the containers of the workload.
#[derive(Clone, Copy, Debug)]
pub enum Sidecar {
    Istio,
    Linkerd,
    Vault,
    CloudSql,
    Exporter,
    Logs,
    Otel,
    OauthProxy,
    KubeRbacProxy,
    ConfigReloader,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub owner: Owner,
    /// The relative frequency of its workloads. Shapes of weight 0 occur once, with a Pod on most nodes.
    pub weight: u32,
    /// The smallest and the largest number of Pods in a workload.
    pub replicas: (u32, u32),
    /// Containers, without sidecars.
    pub containers: &'static [&'static str],
    /// The largest number of init containers.
    pub inits: u32,
    /// The smallest and the largest number of environment variables of a container.
    pub env: (u32, u32),
    /// The smallest and the largest number of volumes, without the service account's volume.
    pub volumes: (u32, u32),
    pub sidecars: &'static [Sidecar],
    pub notes: &'static [Note],
    /// Leaves out whatever a manifest may leave out: labels, arguments, resources, probes, affinity.
    pub is_plain: bool,
}

const fn shape(
    name: &'static str,
    owner: Owner,
    weight: u32,
    replicas: (u32, u32),
    containers: &'static [&'static str],
) -> Shape {
    Shape {
        name,
        owner,
        weight,
        replicas,
        containers,
        inits: 0,
        env: (0, 6),
        volumes: (0, 2),
        sidecars: &[],
        notes: &[],
        is_plain: false,
    }
}

impl Shape {
    const fn env(self, from: u32, to: u32) -> Self {
        Self { env: (from, to), ..self }
    }

    const fn inits(self, inits: u32) -> Self {
        Self { inits, ..self }
    }

    const fn volumes(self, from: u32, to: u32) -> Self {
        Self { volumes: (from, to), ..self }
    }

    const fn sidecars(self, sidecars: &'static [Sidecar]) -> Self {
        Self { sidecars, ..self }
    }

    const fn plain(self) -> Self {
        Self { is_plain: true, ..self }
    }

    const fn notes(self, notes: &'static [Note]) -> Self {
        Self { notes, ..self }
    }
}

use Note as N;
use Owner::{DaemonSet, Deployment, Job, Nothing, Operator, StatefulSet, Static};
use Sidecar as S;

#[rustfmt::skip]
pub const SHAPES: &[Shape] = &[
    // Services.
    shape("api", Deployment, 30, (2, 24), &["api"]).env(8, 40).volumes(1, 4).notes(&[N::Checksums, N::Prometheus, N::Cni]),
    shape("web", Deployment, 24, (2, 12), &["web"]).env(2, 14).notes(&[N::Restarted, N::Cni]),
    shape("java", Deployment, 20, (2, 16), &["app"]).env(16, 60).inits(1).volumes(2, 7).sidecars(&[S::Otel]).notes(&[N::Checksums, N::Prometheus, N::Cni]),
    shape("mesh", Deployment, 20, (2, 20), &["app"]).env(6, 30).inits(1).volumes(2, 5).sidecars(&[S::Istio]).notes(&[N::Istio, N::Prometheus, N::Cni]),
    shape("mesh-vault", Deployment, 10, (2, 10), &["app"]).env(6, 40).inits(2).volumes(2, 6).sidecars(&[S::Istio, S::Vault]).notes(&[N::Istio, N::Vault, N::Cni]),
    shape("linkerd", Deployment, 8, (2, 8), &["app"]).env(4, 20).inits(1).volumes(1, 3).sidecars(&[S::Linkerd]).notes(&[N::Linkerd, N::Cni]),
    shape("cloud-sql", Deployment, 8, (1, 6), &["app"]).env(6, 24).sidecars(&[S::CloudSql]).notes(&[N::Checksums]),
    shape("grpc", Deployment, 14, (2, 30), &["server"]).env(4, 18).volumes(1, 3).sidecars(&[S::Otel]).notes(&[N::Prometheus, N::Cni]),
    shape("worker", Deployment, 16, (1, 20), &["worker"]).env(8, 36).notes(&[N::Datadog, N::Checksums]),
    shape("legacy", Deployment, 4, (1, 3), &["app", "nginx", "cron"]).env(30, 80).inits(2).volumes(4, 10).sidecars(&[S::Logs, S::Exporter]).notes(&[N::Checksums, N::Config]),
    shape("frontend", Deployment, 12, (2, 6), &["nginx"]).volumes(1, 3).notes(&[N::Restarted]),
    shape("oauth", Deployment, 5, (1, 3), &["app"]).env(2, 10).sidecars(&[S::OauthProxy]),
    shape("ml-serving", Deployment, 5, (1, 8), &["predictor", "transformer"]).env(10, 30).inits(1).volumes(2, 4).notes(&[N::Config, N::Prometheus]),
    shape("gateway", Deployment, 3, (3, 12), &["envoy"]).env(10, 20).volumes(4, 8).notes(&[N::Istio, N::Prometheus]),
    shape("small", Deployment, 14, (1, 3), &["app"]).env(0, 2).volumes(0, 0).plain(),
    // The cluster's own.
    shape("coredns", Deployment, 1, (2, 6), &["coredns"]).volumes(1, 1).notes(&[N::Prometheus]),
    shape("operator", Deployment, 10, (1, 2), &["manager"]).env(1, 8).sidecars(&[S::KubeRbacProxy]).notes(&[N::SafeToEvict]),
    shape("csi-controller", Deployment, 2, (2, 2), &["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "liveness-probe", "driver"]).env(2, 6).volumes(2, 4),
    shape("argo-cd", Deployment, 2, (1, 3), &["server"]).env(30, 70).inits(1).volumes(4, 8).notes(&[N::Checksums]),
    shape("grafana", Deployment, 2, (1, 2), &["grafana"]).env(6, 14).inits(2).volumes(4, 9).sidecars(&[S::ConfigReloader]).notes(&[N::Checksums, N::Config]),
    shape("webhook", Deployment, 6, (2, 3), &["webhook"]).env(1, 4).volumes(1, 1),
    // With state.
    shape("postgres", Operator("apps/v1", "StatefulSet", "kube-controller-manager"), 4, (2, 3), &["postgres"]).env(14, 30).inits(1).volumes(3, 6).sidecars(&[S::Exporter]).notes(&[N::Config, N::Prometheus]),
    shape("kafka", Operator("core.strimzi.io/v1beta2", "StrimziPodSet", "strimzi-cluster-operator"), 3, (3, 9), &["kafka"]).env(16, 34).inits(1).volumes(4, 9).notes(&[N::Config, N::Prometheus, N::Multus]),
    shape("elasticsearch", StatefulSet, 3, (3, 12), &["elasticsearch"]).env(12, 24).inits(3).volumes(6, 12).sidecars(&[S::Logs]).notes(&[N::Config]),
    shape("redis", StatefulSet, 8, (1, 6), &["redis"]).env(4, 12).volumes(2, 5).sidecars(&[S::Exporter]).notes(&[N::Checksums]),
    shape("cassandra", StatefulSet, 2, (3, 9), &["cassandra"]).env(16, 40).inits(2).volumes(4, 8).sidecars(&[S::Logs, S::Exporter]).notes(&[N::Config]),
    shape("prometheus", StatefulSet, 2, (1, 4), &["prometheus"]).env(1, 3).inits(1).volumes(5, 20).sidecars(&[S::ConfigReloader, S::Exporter]).notes(&[N::Checksums]),
    shape("etcd", StatefulSet, 2, (3, 5), &["etcd"]).env(10, 20).volumes(2, 4),
    shape("rabbitmq", StatefulSet, 3, (1, 5), &["rabbitmq"]).env(8, 16).inits(1).volumes(4, 7).notes(&[N::Prometheus]),
    // On each node.
    shape("cni", DaemonSet, 0, (1, 1), &["agent"]).env(8, 20).inits(5).volumes(8, 16).notes(&[N::Prometheus]),
    shape("kube-proxy", DaemonSet, 0, (1, 1), &["kube-proxy"]).volumes(3, 3),
    shape("node-exporter", DaemonSet, 0, (1, 1), &["node-exporter"]).volumes(3, 3).sidecars(&[S::KubeRbacProxy]).notes(&[N::SafeToEvict]),
    shape("logs", DaemonSet, 0, (1, 1), &["fluent-bit"]).env(4, 12).volumes(4, 7).notes(&[N::Checksums, N::Prometheus]),
    shape("csi-node", DaemonSet, 0, (1, 1), &["driver", "node-driver-registrar", "liveness-probe"]).env(2, 6).volumes(5, 8),
    shape("datadog", DaemonSet, 0, (1, 1), &["agent", "trace-agent", "process-agent"]).env(30, 60).inits(2).volumes(10, 18).notes(&[N::Datadog, N::Checksums]),
    shape("static", Static, 0, (1, 1), &["kube-apiserver"]).volumes(4, 8).notes(&[N::StaticHash]),
    // Batch.
    shape("cron", Job, 16, (1, 4), &["job"]).env(2, 14).notes(&[N::SafeToEvict]),
    shape("hook", Job, 6, (1, 2), &["hook"]).env(0, 3).volumes(0, 0).plain(),
    shape("backup", Job, 6, (1, 3), &["backup"]).env(6, 16).volumes(2, 4),
    shape("workflow", Operator("argoproj.io/v1alpha1", "Workflow", "workflow-controller"), 7, (1, 16), &["main", "wait"]).env(4, 12).inits(1).volumes(3, 6).notes(&[N::Workflow]),
    shape("pipeline", Operator("tekton.dev/v1", "TaskRun", "pipelines-controller"), 5, (1, 8), &["step-clone", "step-build", "step-test", "step-push"]).env(2, 10).inits(2).volumes(8, 16).notes(&[N::Pipeline]),
    shape("spark", Operator("sparkoperator.k8s.io/v1beta2", "SparkApplication", "spark-operator"), 4, (2, 24), &["spark-executor"]).env(14, 30).volumes(2, 5).notes(&[N::Config]),
    shape("ray", Operator("ray.io/v1", "RayCluster", "kuberay-operator"), 2, (2, 12), &["ray-worker"]).env(10, 26).inits(1).volumes(2, 4).sidecars(&[S::Logs]),
    shape("training", Operator("kubeflow.org/v1", "PyTorchJob", "training-operator"), 3, (1, 16), &["pytorch"]).env(16, 50).inits(1).volumes(3, 6).notes(&[N::Multus, N::Config]),
    shape("ci-runner", Operator("actions.github.com/v1alpha1", "EphemeralRunner", "actions-runner-controller"), 5, (1, 20), &["runner", "dind"]).env(8, 16).inits(1).volumes(3, 5),
    // By hand.
    shape("notebook", StatefulSet, 4, (1, 1), &["notebook"]).env(4, 20).volumes(2, 5).sidecars(&[S::Istio]).notes(&[N::Istio, N::SafeToEvict]),
    shape("debug", Nothing, 3, (1, 1), &["shell"]).env(0, 4).notes(&[N::LastApplied]),
];
