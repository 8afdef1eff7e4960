package main

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The types have the fields of ../src/custom_types.rs, as the types of their projects do.

type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              certificateSpec   `json:"spec,omitempty"`
	Status            certificateStatus `json:"status,omitempty"`
}

type certificateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []certificate `json:"items"`
}

type certificateSpec struct {
	DNSNames   []string  `json:"dnsNames,omitempty"`
	IssuerRef  issuerRef `json:"issuerRef"`
	SecretName string    `json:"secretName"`
	Usages     []string  `json:"usages,omitempty"`
}

type issuerRef struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name"`
}

type certificateStatus struct {
	Conditions  []condition  `json:"conditions,omitempty"`
	NotAfter    *metav1.Time `json:"notAfter,omitempty"`
	NotBefore   *metav1.Time `json:"notBefore,omitempty"`
	RenewalTime *metav1.Time `json:"renewalTime,omitempty"`
	Revision    *int64       `json:"revision,omitempty"`
}

type condition struct {
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	Message            string       `json:"message,omitempty"`
	ObservedGeneration int64        `json:"observedGeneration,omitempty"`
	Reason             string       `json:"reason,omitempty"`
	Severity           string       `json:"severity,omitempty"`
	Status             string       `json:"status"`
	Type               string       `json:"type"`
}

type revision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              revisionSpec   `json:"spec,omitempty"`
	Status            revisionStatus `json:"status,omitempty"`
}

type revisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []revision `json:"items"`
}

type revisionSpec struct {
	ContainerConcurrency *int64      `json:"containerConcurrency,omitempty"`
	Containers           []container `json:"containers"`
	EnableServiceLinks   *bool       `json:"enableServiceLinks,omitempty"`
	ServiceAccountName   string      `json:"serviceAccountName,omitempty"`
	TimeoutSeconds       *int64      `json:"timeoutSeconds,omitempty"`
}

type container struct {
	Env             []nameValue      `json:"env,omitempty"`
	Image           string           `json:"image"`
	Name            string           `json:"name"`
	Ports           []port           `json:"ports,omitempty"`
	ReadinessProbe  *probe           `json:"readinessProbe,omitempty"`
	Resources       resources        `json:"resources,omitempty"`
	SecurityContext *securityContext `json:"securityContext,omitempty"`
}

type nameValue struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type port struct {
	ContainerPort int32  `json:"containerPort"`
	Name          string `json:"name,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
}

type probe struct {
	FailureThreshold int32    `json:"failureThreshold,omitempty"`
	HTTPGet          *httpGet `json:"httpGet,omitempty"`
	PeriodSeconds    int32    `json:"periodSeconds,omitempty"`
	SuccessThreshold int32    `json:"successThreshold,omitempty"`
	TimeoutSeconds   int32    `json:"timeoutSeconds,omitempty"`
}

type httpGet struct {
	Path   string `json:"path,omitempty"`
	Port   int32  `json:"port"`
	Scheme string `json:"scheme,omitempty"`
}

type resources struct {
	Limits   map[string]string `json:"limits,omitempty"`
	Requests map[string]string `json:"requests,omitempty"`
}

type securityContext struct {
	AllowPrivilegeEscalation *bool           `json:"allowPrivilegeEscalation,omitempty"`
	Capabilities             *capabilities   `json:"capabilities,omitempty"`
	RunAsNonRoot             *bool           `json:"runAsNonRoot,omitempty"`
	SeccompProfile           *seccompProfile `json:"seccompProfile,omitempty"`
}

type capabilities struct {
	Drop []string `json:"drop,omitempty"`
}

type seccompProfile struct {
	Type string `json:"type"`
}

type revisionStatus struct {
	ActualReplicas     *int32            `json:"actualReplicas,omitempty"`
	Conditions         []condition       `json:"conditions,omitempty"`
	ContainerStatuses  []containerStatus `json:"containerStatuses,omitempty"`
	DesiredReplicas    *int32            `json:"desiredReplicas,omitempty"`
	ObservedGeneration int64             `json:"observedGeneration,omitempty"`
}

type containerStatus struct {
	ImageDigest string `json:"imageDigest,omitempty"`
	Name        string `json:"name,omitempty"`
}

type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              applicationSpec   `json:"spec"`
	Status            applicationStatus `json:"status,omitempty"`
}

type applicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []application `json:"items"`
}

type applicationSpec struct {
	Destination       destination         `json:"destination"`
	IgnoreDifferences []ignoreDifferences `json:"ignoreDifferences,omitempty"`
	Project           string              `json:"project"`
	Source            *source             `json:"source,omitempty"`
	SyncPolicy        *syncPolicy         `json:"syncPolicy,omitempty"`
}

type destination struct {
	Namespace string `json:"namespace,omitempty"`
	Server    string `json:"server,omitempty"`
}

type ignoreDifferences struct {
	Group        string   `json:"group,omitempty"`
	JSONPointers []string `json:"jsonPointers,omitempty"`
	Kind         string   `json:"kind"`
}

type source struct {
	Helm           *helm  `json:"helm,omitempty"`
	Path           string `json:"path,omitempty"`
	RepoURL        string `json:"repoURL"`
	TargetRevision string `json:"targetRevision,omitempty"`
}

type helm struct {
	Parameters   []nameValue           `json:"parameters,omitempty"`
	ReleaseName  string                `json:"releaseName,omitempty"`
	ValueFiles   []string              `json:"valueFiles,omitempty"`
	ValuesObject *runtime.RawExtension `json:"valuesObject,omitempty"`
}

type syncPolicy struct {
	Automated   *automated `json:"automated,omitempty"`
	Retry       *retry     `json:"retry,omitempty"`
	SyncOptions []string   `json:"syncOptions,omitempty"`
}

type automated struct {
	Prune    bool `json:"prune,omitempty"`
	SelfHeal bool `json:"selfHeal,omitempty"`
}

type retry struct {
	Backoff *backoff `json:"backoff,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
}

type backoff struct {
	Duration    string `json:"duration,omitempty"`
	Factor      *int64 `json:"factor,omitempty"`
	MaxDuration string `json:"maxDuration,omitempty"`
}

type applicationStatus struct {
	ControllerNamespace string           `json:"controllerNamespace,omitempty"`
	Health              health           `json:"health,omitempty"`
	History             []history        `json:"history,omitempty"`
	OperationState      *operationState  `json:"operationState,omitempty"`
	ReconciledAt        *metav1.Time     `json:"reconciledAt,omitempty"`
	Resources           []resourceStatus `json:"resources,omitempty"`
	SourceHydrator      struct{}         `json:"sourceHydrator,omitempty"`
	SourceType          string           `json:"sourceType,omitempty"`
	Summary             summary          `json:"summary,omitempty"`
	Sync                syncStatus       `json:"sync,omitempty"`
}

type health struct {
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	Status             string       `json:"status,omitempty"`
}

type history struct {
	DeployStartedAt *metav1.Time `json:"deployStartedAt,omitempty"`
	DeployedAt      metav1.Time  `json:"deployedAt"`
	ID              int64        `json:"id"`
	InitiatedBy     initiatedBy  `json:"initiatedBy,omitempty"`
	Revision        string       `json:"revision,omitempty"`
	Source          source       `json:"source,omitempty"`
}

type initiatedBy struct {
	Automated bool `json:"automated,omitempty"`
}

type operationState struct {
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	Message    string       `json:"message,omitempty"`
	Operation  operation    `json:"operation"`
	Phase      string       `json:"phase"`
	StartedAt  metav1.Time  `json:"startedAt"`
	SyncResult *syncResult  `json:"syncResult,omitempty"`
}

type operation struct {
	InitiatedBy initiatedBy    `json:"initiatedBy,omitempty"`
	Retry       retry          `json:"retry,omitempty"`
	Sync        *syncOperation `json:"sync,omitempty"`
}

type syncOperation struct {
	Prune       bool     `json:"prune,omitempty"`
	Revision    string   `json:"revision,omitempty"`
	SyncOptions []string `json:"syncOptions,omitempty"`
}

type syncResult struct {
	Resources []*resourceResult `json:"resources,omitempty"`
	Revision  string            `json:"revision"`
	Source    source            `json:"source,omitempty"`
}

type resourceResult struct {
	Group     string `json:"group"`
	HookPhase string `json:"hookPhase,omitempty"`
	Kind      string `json:"kind"`
	Message   string `json:"message,omitempty"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Status    string `json:"status,omitempty"`
	SyncPhase string `json:"syncPhase,omitempty"`
	Version   string `json:"version"`
}

type resourceStatus struct {
	Group     string  `json:"group,omitempty"`
	Health    *health `json:"health,omitempty"`
	Kind      string  `json:"kind,omitempty"`
	Name      string  `json:"name,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Status    string  `json:"status,omitempty"`
	SyncWave  int64   `json:"syncWave,omitempty"`
	Version   string  `json:"version,omitempty"`
}

type summary struct {
	Images []string `json:"images,omitempty"`
}

type syncStatus struct {
	ComparedTo comparedTo `json:"comparedTo,omitempty"`
	Revision   string     `json:"revision,omitempty"`
	Status     string     `json:"status"`
}

type comparedTo struct {
	Destination destination `json:"destination"`
	Source      source      `json:"source,omitempty"`
}

// Informers do not copy objects, so a copy need not be fast.

func (c *certificate) DeepCopyObject() runtime.Object     { return copied(c) }
func (c *certificateList) DeepCopyObject() runtime.Object { return copied(c) }
func (r *revision) DeepCopyObject() runtime.Object        { return copied(r) }
func (r *revisionList) DeepCopyObject() runtime.Object    { return copied(r) }
func (a *application) DeepCopyObject() runtime.Object     { return copied(a) }
func (a *applicationList) DeepCopyObject() runtime.Object { return copied(a) }

func copied[T any](object *T) *T {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return &out
}
