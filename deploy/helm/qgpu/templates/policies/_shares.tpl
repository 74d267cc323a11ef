{{- /*
The rules of shares, for whatever has a pod in it. The argument's "pod" is CEL for the
pod or its template, "root" the chart. Every variable below "the rules" is the list of
what one rule has to say; the pod passes where all are empty.
*/ -}}
{{- define "qgpu.cel.shares" -}}
{{- $pod := .pod -}}
{{- with .root -}}
variables:
  - name: spec
    expression: >-
      {{ $pod }}.spec
  - name: class
    expression: >-
      {{ $pod }}.?metadata.?annotations[?'tke.cloud.tencent.com/app-class'].orValue('')
  - name: annotations
    expression: >-
      {{ $pod }}.?metadata.?annotations.orValue({})
  - name: names
    expression: >-
      {{- include "qgpu.cel.names" . | nindent 6 }}
  - name: containers
    expression: variables.spec.containers + variables.spec.?initContainers.orValue([])
  - name: everyContainer
    expression: variables.containers + variables.spec.?ephemeralContainers.orValue([])
  - name: asking
    expression: >-
      variables.containers.filter(c, variables.names.exists(n,
        n in c.?resources.?limits.orValue({}) || n in c.?resources.?requests.orValue({})))
  # By name, what each asking container asks for. That these are whole numbers, and that
  # requests equal limits, the API server itself has seen to before.
  - name: amounts
    expression: >-
      variables.asking.map(c, c.?resources.?limits.orValue({}).transformMap(n, q, n in variables.names,
        quantity(string(q)).asInteger()))
  # The same in one form for all names. A share of nano-gpu has memory with its percent.
  - name: shares
    expression: >-
      variables.amounts.map(a, {
        'core': a[?'tke.cloud.tencent.com/qgpu-core'].orValue(a[?'elasticgpu.io/gpu-core'].orValue(a[?'nano-gpu/gpu-percent'].orValue(0))),
        'memory': 'nano-gpu/gpu-percent' in a ? (a['nano-gpu/gpu-percent'] % 100 == 0 ? 0 : a['nano-gpu/gpu-percent'])
          : a[?'tke.cloud.tencent.com/qgpu-memory'].orValue(a[?'elasticgpu.io/gpu-memory'].orValue(0)),
        'greedy': a[?'tke.cloud.tencent.com/qgpu-core-greedy'].orValue(0)})
  - name: cards
    expression: "variables.shares.map(s, s.core > 100 ? (s.core + 99) / 100 : 1)"
  - name: title
    expression: >-
      variables.asking.map(c, 'container "' + c.name + '": ')
  - name: coreName
    expression: >-
      variables.amounts.map(a, 'nano-gpu/gpu-percent' in a ? 'nano-gpu/gpu-percent'
        : a.exists(n, n.startsWith('elasticgpu.io/')) ? 'elasticgpu.io/gpu-core' : 'tke.cloud.tencent.com/qgpu-core')
  - name: memoryName
    expression: >-
      variables.amounts.map(a, a.exists(n, n.startsWith('elasticgpu.io/')) ? 'elasticgpu.io/gpu-memory' : 'tke.cloud.tencent.com/qgpu-memory')
  - name: memoryUnit
    expression: "variables.amounts.map(a, a.exists(n, n.startsWith('elasticgpu.io/')) ? 'MiB' : 'GiB')"
  # The rules.
  - name: classes
    expression: >-
      variables.class in ['', 'online', 'offline'] ? []
        : ['annotation tke.cloud.tencent.com/app-class: "' + variables.class + '" is no class; write online or offline, or leave it out for an ordinary pod']
  - name: least
    expression: >-
      variables.amounts.transformList(i, a, a.transformList(n, v, v < 1,
        variables.title[i] + n + ' is ' + string(variables.asking[i].resources.limits[n]) + ', and the least is ' +
        (n.endsWith('core') || n.endsWith('percent') ? '5 percent' : n.endsWith('greedy') ? '1 percent' : n.endsWith('gpu-memory') && n.startsWith('elastic') ? '1 (MiB)' : '1 (GiB)'))).flatten()
  - name: units
    expression: >-
      variables.amounts.transformList(i, a, a[?'tke.cloud.tencent.com/qgpu-memory'].orValue(0) > 65536,
        variables.title[i] + 'qgpu-memory is ' + string(variables.asking[i].resources.limits['tke.cloud.tencent.com/qgpu-memory']) +
        ', and it counts GiB: write a number without a unit, such as "' +
        string(a['tke.cloud.tencent.com/qgpu-memory'] < 1073741824 ? 1 : a['tke.cloud.tencent.com/qgpu-memory'] / 1073741824) + '"')
  - name: families
    expression: >-
      variables.amounts.transformList(i, a,
        size(['tke.cloud.tencent.com/', 'elasticgpu.io/', 'nano-gpu/'].filter(f, a.exists(n, n.startsWith(f)))) > 1,
        variables.title[i] + 'asks in two ways: ' + a.transformList(n, v, n).sort().join(', ') + '; keep the names of one family')
  - name: steps
    expression: >-
      variables.shares.transformList(i, s, s.core % 100 != 0 && s.core % (5 * variables.cards[i]) != 0,
        variables.title[i] + variables.coreName[i] + ' is ' + string(s.core) + (s.core < 100
          ? ', and part of a card is 5 to 100 percent in steps of 5; the nearest is ' + string((s.core + 2) / 5 * 5 < 5 ? 5 : (s.core + 2) / 5 * 5)
          : ', which lies evenly on ' + string(variables.cards[i]) + ' cards in steps of ' + string(5 * variables.cards[i]) + '; the nearest is ' +
            string([(s.core + 5 * variables.cards[i] / 2) / (5 * variables.cards[i]) * (5 * variables.cards[i]), 95 * variables.cards[i]].min())))
  - name: wholeCards
    expression: >-
      variables.shares.transformList(i, s, s.core > 100 && s.core % 100 == 0 && s.memory > 0,
        variables.title[i] + variables.coreName[i] + ' is ' + string(s.core) + ', that is whole cards, which come with all of their memory; leave ' +
        variables.memoryName[i] + ' out')
  - name: parts
    expression: >-
      variables.shares.transformList(i, s, variables.class == '' && s.core % 100 != 0 && s.memory == 0,
        variables.title[i] + variables.coreName[i] + ' is ' + string(s.core) + ', part of a card, and needs memory; add ' + variables.memoryName[i] +
        ', at least ' + string(variables.cards[i]) + ' (' + variables.memoryUnit[i] + '), or ask for whole cards with ' + string(100 * variables.cards[i]))
  - name: splits
    expression: >-
      variables.shares.transformList(i, s, s.core % 100 != 0 && variables.cards[i] > 1 && s.memory % variables.cards[i] != 0,
        variables.title[i] + variables.memoryName[i] + ' is ' + string(s.memory) + ', which does not lie evenly on ' + string(variables.cards[i]) +
        ' cards (core ' + string(s.core) + '); the nearest is ' +
        string([(s.memory + variables.cards[i] / 2) / variables.cards[i] * variables.cards[i], variables.cards[i]].max()))
  - name: ordinary
    expression: >-
      variables.class != '' ? [] : variables.shares.transformList(i, s, s.core == 0 && s.greedy == 0 && s.memory > 0,
        variables.title[i] + 'asks for memory alone; add ' + variables.coreName[i] +
        ' (5 to 100), or annotate the pod with tke.cloud.tencent.com/app-class: online')
  - name: greedy
    expression: >-
      variables.shares.transformList(i, s, variables.class == '' && s.greedy > 0,
        variables.title[i] + 'asks for qgpu-core-greedy, which is for offline pods; annotate the pod with tke.cloud.tencent.com/app-class: offline, or ask for qgpu-core')
  - name: online
    expression: >-
      variables.class != 'online' ? [] : variables.shares.transformList(i, s, s.core > 0 || s.greedy > 0 || s.memory == 0,
        variables.title[i] + 'an online pod asks for memory alone, and has compute before others; ask for ' + variables.memoryName[i] + ' and nothing else')
  - name: offline
    expression: >-
      variables.class != 'offline' ? [] : variables.shares.transformList(i, s, s.core > 0 || s.greedy == 0 || s.memory == 0,
        variables.title[i] + 'an offline pod asks for tke.cloud.tencent.com/qgpu-core-greedy (1 to 100) and tke.cloud.tencent.com/qgpu-memory, and for no core')
  - name: greedySteps
    expression: >-
      variables.shares.transformList(i, s, s.greedy > 100,
        variables.title[i] + 'qgpu-core-greedy is ' + string(s.greedy) + ', and an offline share lies on one card: 1 to 100 percent; the nearest is 100')
  - name: strategies
    expression: >-
      ['qgpu.io/node-placement', 'qgpu.io/card-placement'].filter(a,
        !(variables.annotations[?a].orValue('binpack') in ['binpack', 'spread', 'frag', 'fgd'])).map(a,
        'annotation ' + a + ': "' + variables.annotations[a] + '" is unknown; write binpack, spread, frag or fgd')
  - name: containerCards
    expression: >-
      variables.annotations[?'qgpu.io/container-cards'].orValue('any') in ['same', 'different', 'any'] ? []
        : ['annotation qgpu.io/container-cards: "' + variables.annotations['qgpu.io/container-cards'] + '" is unknown; write same, different or any']
  - name: otherResources
    expression: >-
      variables.containers.map(c, c.?resources.?limits.orValue({}).transformList(n, q, n.startsWith('nvidia.com/'),
        'container "' + c.name + '": ' + n + ' is handed out by another device plugin, past every share; a pod has the one or the other')).flatten()
  - name: privileged
    expression: >-
      variables.everyContainer.filter(c, c.?securityContext.?privileged.orValue(false)).map(c,
        'container "' + c.name + '": privileged: it could open every card, past every share; leave it out, or move it to a pod without a share')
  - name: capabilities
    expression: >-
      variables.everyContainer.map(c, c.?securityContext.?capabilities.?add.orValue([]).filter(p,
        p.upperAscii().replace('CAP_', '') in ['ALL', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_RAWIO']).map(p,
        'container "' + c.name + '": capability ' + p + ' undoes every share; leave it out, or move the container to a pod without a share')).flatten()
  - name: hostProcesses
    expression: >-
      !variables.spec.?hostPID.orValue(false) ? []
        : ['hostPID: it shows the pod the processes that hold its share, and those of others; leave it out']
  - name: hostPaths
    expression: >-
      variables.spec.?volumes.orValue([]).filter(v, has(v.hostPath)).map(v, {
        'name': string(v.name), 'given': string(v.hostPath.path), 'path': '/' + string(v.hostPath.path).split('/').filter(s, s != '' && s != '.').join('/')}).filter(v,
        ['/dev', '/proc', '/run/qgpu', '/run/qgpu-sim', '/var/run/qgpu', '/var/run/qgpu-sim', '/etc/qgpu', '{{ .Values.runtime.installDir }}'].exists(d,
          (d + '/').startsWith(v.path == '/' ? '/' : v.path + '/') || v.path.startsWith(d + '/')) &&
        !(v.path + '/').startsWith('/dev/shm/')).map(v,
        'volume "' + v.name + '": hostPath ' + v.given + ' reaches devices, or what holds the shares; mount less of the node')
  - name: scheduler
    expression: >-
      variables.spec.?schedulerName.orValue('') in ['', 'default-scheduler', '{{ .Values.scheduler.name }}'] ? []
        : ['schedulerName ' + variables.spec.schedulerName + ' knows no cards; leave it out, or write {{ .Values.scheduler.name }}']
  - name: runtimeClass
    expression: >-
      variables.spec.?runtimeClassName.orValue('{{ .Values.runtime.class }}') == '{{ .Values.runtime.class }}' ? []
        : ['runtimeClassName ' + variables.spec.runtimeClassName + ' holds no share; leave it out, or write {{ .Values.runtime.class }}']
  - name: nodeName
    expression: >-
      request.operation != 'CREATE' || variables.spec.?nodeName.orValue('') == '' ? []
        : ['nodeName: a pod that names its node passes by the scheduler and gets no card; select the node by nodeSelector kubernetes.io/hostname: ' + variables.spec.nodeName]
validations:
  {{- range $rule := list "least" "units" "families" "classes" "online" "offline" "greedy" "greedySteps"
    "ordinary" "steps" "wholeCards" "parts" "splits" "strategies" "containerCards" "otherResources" "privileged" "capabilities"
    "hostProcesses" "hostPaths" "scheduler" "runtimeClass" "nodeName" }}
  - expression: size(variables.{{ $rule }}) == 0
    messageExpression: variables.{{ $rule }}.join('; ')
  {{- end }}
{{- end }}
{{- end }}
