//! A batch as an Indexed Job of Kubernetes.

use super::{EmittedBatch, STOP_SECONDS, batch_comment};
use crate::view::sanitize;

/// A Kubernetes manifest that runs a batch.
#[derive(Clone, Debug)]
pub struct KubernetesJob {
    /// The batch. Its folder is the mount point of the volume.
    pub batch: EmittedBatch,
    /// The image of the containers. It contains `architect`, `/bin/sh`, and the programs that the tasks need.
    pub image: String,
    /// The name of the claim of the volume that all parts share.
    pub claim: String,
    /// The name of the secret with the API keys of the models, as environment variables.
    pub secret: String,
    /// The CPUs of a part, as a Kubernetes quantity.
    pub cpu: String,
    /// The memory of a part, as a Kubernetes quantity.
    pub memory: String,
}

impl KubernetesJob {
    /// Returns the manifest as YAML.
    #[allow(clippy::too_many_lines)] // of the manifest
    pub fn render(&self) -> String {
        let Self { batch, image, claim, secret, cpu, memory } = self;
        let EmittedBatch { name, folder, words, part_words, cells, nodes } = batch;
        let comment = batch_comment(name, *cells, nodes.get());
        let job = batch.job_name().to_ascii_lowercase().replace('_', "-");
        let job = job.trim_end_matches('-');
        let words: String = words
            .iter()
            .chain(part_words)
            .map(|word| format!("            - {}\n", argument(word)))
            .collect();
        let [folder, image, claim, secret, cpu, memory] =
            [folder, image, claim, secret, cpu, memory].map(|text| yaml_text(text));
        format!(
            r#"# {comment}, as an Indexed Job:
#
#     kubectl create secret generic {secret} --from-env-file=FILE    # lines such as ANTHROPIC_API_KEY=…
#     kubectl apply -f FILE
#
# The volume has the tasks, what they work on, and the folder of the batch. All parts use it at once: it needs the access
# mode ReadWriteMany, and file locks that hold. To continue: `kubectl delete job {job}`, and apply this again.
apiVersion: batch/v1
kind: Job
metadata:
  name: {job}
  labels:
    app.kubernetes.io/name: architect
spec:
  completionMode: Indexed
  completions: {nodes}
  parallelism: {nodes}
  backoffLimitPerIndex: 3
  podFailurePolicy:
    rules:
      # A mistake in the tasks or in the configuration (3), or a key that is not accepted (4): no part can succeed.
      - action: FailJob
        onExitCodes:
          containerName: architect
          operator: In
          values: [3, 4]
      # Some cells did not succeed (2). They are finished; another attempt would skip them.
      - action: FailIndex
        onExitCodes:
          containerName: architect
          operator: In
          values: [2]
      # Stopped by SIGTERM (143), or lost with its node: another pod resumes the cells.
      - action: Ignore
        onExitCodes:
          containerName: architect
          operator: In
          values: [143]
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    metadata:
      labels:
        app.kubernetes.io/name: architect
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {STOP_SECONDS}
      # In the usual filter of a container, commands of the model are confined by Landlock and a filter of system calls, not
      # by namespaces: they can reach sockets of other programs, change permissions and times of the user's other files, and
      # write protected files of the workspace, which are restored. `architect doctor` in the container says what holds.
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: architect
          image: {image}
          # Indexes count from 0, parts from 1. Kubernetes reads $$ as one $.
          command:
            - /bin/sh
            - -c
            - exec architect batch "$$@" --shard "$$((JOB_COMPLETION_INDEX + 1))/{nodes}"
            - architect
          args:
{words}          workingDir: {folder}
          env:
            - name: HOME
              value: /home/architect
            # Worktrees, which another node may have to continue.
            - name: XDG_STATE_HOME
              value: /var/lib/architect
          envFrom:
            - secretRef:
                name: {secret}
          resources:
            requests:
              cpu: {cpu}
              memory: {memory}
            limits:
              memory: {memory}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - name: shared
              mountPath: {folder}
            - name: shared
              mountPath: /var/lib/architect
              subPath: .architect-state
            - name: temporary
              mountPath: /tmp
              subPath: tmp
            - name: temporary
              mountPath: /home/architect
              subPath: home
      volumes:
        - name: shared
          persistentVolumeClaim:
            claimName: {claim}
        - name: temporary
          emptyDir: {{}}
"#
        )
    }
}

/// Returns a YAML string.
fn yaml_text(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.chars()
        .map(|c| match sanitize::is_harmful(c) {
            true => format!("\\U{:08x}", u32::from(c)),
            false => c.to_string(),
        })
        .collect()
}

/// Returns a literal argument. Kubernetes would otherwise read `$(NAME)` as a variable, and `$$` as `$`.
fn argument(word: &str) -> String {
    yaml_text(&word.replace('$', "$$"))
}
